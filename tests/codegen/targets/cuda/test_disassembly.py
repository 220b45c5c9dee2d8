"""Loops and opcodes of a disassembly."""

from __future__ import annotations

from gpu.disassembly import SLOW, kernels

LISTING = """\
	.section	.text.first,"ax",@progbits
first:
.text.first:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDG.E.128.CONSTANT R8, desc[UR4][R24.64] ;
.L_x_2:
        /*0020*/                   FFMA R5, R5, R6, R7 ;
        /*0030*/              @!P1 FFMA.SAT R5, R5, R6, R7 ;
        /*0040*/               @P0 BRA `(.L_x_2) ;
        /*0050*/                   STG.E.128 desc[UR4][R2.64], R12 ;
        /*0060*/               @P1 CALL.REL.NOINC `(.L_x_4) ;
        /*0070*/                   BRA `(.L_x_1) ;
.L_x_4:
        /*0080*/                   FCHK P0, R4, R5 ;
        /*0090*/                   CALL.REL.NOINC `($__internal_0_$__cuda_div_rn_slowpath) ;
        /*00a0*/                   EXIT ;
.L_x_3:
        /*00b0*/                   BRA `(.L_x_3);
        /*00c0*/                   NOP;
        .type           $__internal_0_$__cuda_div_rn_slowpath,@function
$__internal_0_$__cuda_div_rn_slowpath:
        /*00d0*/                   FFMA R0, R0, R1, R2 ;
.L_x_9:


//--------------------- .text.second              --------------------------
	.section	.text.second,"ax",@progbits
second:
.text.second:
        /*0000*/                   LDL R1, [R2] ;
        /*0010*/                   EXIT ;


//--------------------- .nv.shared.first          --------------------------
        /*0000*/                   FFMA R0, R0, R1, R2 ;
"""


def test_loops_hold_what_is_in_no_inner_loop() -> None:
    first, second = kernels(LISTING)
    assert [(loop.label, loop.instructions) for loop in first.loops] == [
        ("", 5),
        (".L_x_1", 4),
        (".L_x_2", 3),
    ]
    assert (first.name, second.name, second.instructions) == ("first", "second", 2)
    assert first.hottest("FFMA").label == ".L_x_2"
    assert first.hottest("STG").opcodes == {
        "LDG.E.128.CONSTANT": 1,
        "STG.E.128": 1,
        "BRA": 2,
    }


def test_opcodes_are_counted_with_their_modifiers() -> None:
    first, second = kernels(LISTING)
    assert first.count("FFMA") == 2 and first.count("FFMA.SAT") == 1 and first.count("FF") == 0
    assert first.count(*SLOW) == 2 and second.count(*SLOW) == 1


def test_what_is_no_disassembly_has_no_kernels() -> None:
    assert kernels("// no nvdisasm on this machine: this is the PTX\n.text") == ()
