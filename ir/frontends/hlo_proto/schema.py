"""The schema of XLA's protocol buffers: numbers of fields, of types and of enumerators.

The numbers are those of ``xla/service/hlo.proto`` and ``xla/xla_data.proto`` (OpenXLA, as of jaxlib
0.10.2); they never change their meaning, new ones are added. Reader and writer both go by this
table. How the value of an attribute is written follows from its kind in ``hlo/attributes.py``.
"""

from __future__ import annotations

from types import MappingProxyType as Table


def _numbered(text: str) -> Table[str, int]:
    """Return the table of a text of names, each with the number after it."""
    words = text.split()
    return Table(dict(zip(words[::2], map(int, words[1::2]), strict=True)))


TYPES = _numbered(
    "pred 1 s2 26 s4 21 s8 2 s16 3 s32 4 s64 5 u2 27 u4 22 u8 6 u16 7 u32 8 u64 9 f16 10 bf16 16 "
    "f32 11 f64 12 f8e5m2 19 f8e4m3 28 f8e4m3fn 20 f8e4m3b11fnuz 23 f8e3m4 29 f8e5m2fnuz 24 "
    "f8e4m3fnuz 25 f4e2m1fn 32 f8e8m0fnu 33 c64 15 c128 18"
)
"""``PrimitiveType`` of each element type."""

TUPLE, OPAQUE, TOKEN, BUFFER = 13, 14, 17, 34
UNBOUNDED = -(1 << 63)
"""The size of a dimension that no bound is known of."""

LITERALS = _numbered(
    "pred 2 s2 26 s4 21 s8 15 u2 27 u4 22 u8 3 s32 4 s64 5 u32 6 u64 7 f32 8 f64 9 c64 12 c128 18 "
    "f16 11 bf16 13 u16 16 s16 17 f4e2m1fn 32 f8e3m4 29 f8e4m3b11fnuz 23 f8e4m3fn 20 "
    "f8e4m3fnuz 25 f8e4m3 28 f8e5m2fnuz 24 f8e5m2 19 f8e8m0fnu 33"
)
"""The field of ``LiteralProto`` that holds the elements of a type."""

VARINTS = frozenset({"pred", "s32", "s64", "u32", "u64"})
WORDS = Table({"f32": "<f4", "f64": "<f8", "c64": "<f4", "c128": "<f8"})
"""Types whose elements are numbers of their own on the wire; all others are bytes as in memory."""

DIMENSIONS, WINDOW, CONVOLUTION, SLICES, PADDING, DOT = 14, 15, 16, 17, 21, 30
GATHER, SCATTER, TRIANGULAR, CHOLESKY, PRECISION, RAGGED = 33, 48, 59, 62, 51, 90

LITERAL, METADATA, SHAPE, ID, OPERANDS, CONTROL, CALLED, API_VERSION = 8, 7, 3, 35, 36, 37, 38, 77
REPLICA_GROUPS, REPLICA_LIST, IOTA_GROUPS, MESH_GROUPS, SOURCE_TARGETS = 49, 87, 92, 93, 52
CONSTRAINED, OPERAND_SHAPES, ALIASING, BACKEND_CONFIG, FRONTEND_ATTRIBUTES = 56, 57, 74, 43, 68
INFEED_CONFIG, OUTFEED_CONFIG, OUTFEED_SHAPE, PREFETCH_INDEX, THREAD = 27, 22, 29, 80, 79
REPLICATION = 61
"""Fields of an instruction that no attribute's path below says."""

METADATA_TEXTS = Table({"op_type": 1, "op_name": 2, "source_file": 3})
METADATA_NUMBERS = _numbered(
    "source_line 4 source_end_line 17 source_column 18 source_end_column 19 stack_frame_id 15"
)
LOCATION = _numbered("file_name_id 1 function_name_id 2 line 3 end_line 5 column 4 end_column 6")
"""Fields of ``OpMetadata`` and of a ``FileLocation``, in the order of text."""

MODULE_ENTRY, MODULE_COMPUTATIONS, MODULE_PROGRAM, MODULE_ENTRY_ID, MODULE_SCHEDULE = 2, 3, 4, 6, 7
MODULE_ALIASES, MODULE_FRAMES, MODULE_DONORS, MODULE_ATTRIBUTES = 8, 17, 18, 19
COMPUTATION_INSTRUCTIONS, COMPUTATION_PROGRAM, COMPUTATION_ID, COMPUTATION_ROOT = 2, 4, 5, 6
COMPUTATION_FUSED = 7
"""Fields of ``HloModuleProto`` and ``HloComputationProto``; the name is field 1 of each."""

_PLAIN = _numbered(
    "index 13 number 9 feature_group_count 50 batch_group_count 58 exponent_bits 18 "
    "mantissa_bits 19 dynamic_slice_sizes 20 distribution 23 epsilon 24 feature_index 25 "
    "channel_id 26 custom_call_target 28 fft_type 31 fft_length 32 direction 63 type 72 "
    "is_stable 60 indices_are_sorted 67 unique_indices 69 algorithm 70 kind 11 k 81 largest 85 "
    "delta 66 num_carries 95 is_reverse 94 is_associative 96 is_composite 89 "
    "use_global_device_ids 71 is_host_transfer 47 constrain_layout 56 "
    "custom_call_has_side_effect 65 api_version 77 schedule 76 conv_kind 97 padding_type 75 "
    "slice_sizes 34"
)
"""Attributes that are fields of the instruction itself."""

_NESTED = {
    GATHER: _numbered(
        "offset_dims 1 collapsed_slice_dims 2 start_index_map 3 operand_batching_dims 5 "
        "start_indices_batching_dims 6"
    ),
    SCATTER: _numbered(
        "update_window_dims 1 inserted_window_dims 2 scatter_dims_to_operand_dims 3 "
        "input_batching_dims 5 scatter_indices_batching_dims 6"
    ),
    DOT: _numbered(
        "lhs_contracting_dims 1 rhs_contracting_dims 2 lhs_batch_dims 3 rhs_batch_dims 4"
    ),
    TRIANGULAR: _numbered("left_side 1 lower 2 unit_diagonal 3 transpose_a 4"),
}
"""Attributes that are fields of a message of the instruction, by the message's field."""

PLACES: Table[str, tuple[int, ...]] = Table(
    {
        "dimensions": (DIMENSIONS,),
        "iota_dimension": (DIMENSIONS,),
        "window": (WINDOW,),
        "dim_labels": (CONVOLUTION,),
        "slice": (SLICES,),
        "padding": (PADDING,),
        **{name: (field,) for name, field in _PLAIN.items()},
        **{name: (outer, n) for outer, inner in _NESTED.items() for name, n in inner.items()},
    }
)
"""The path of field numbers from an instruction to an attribute."""

PLACES_OF: Table[tuple[str, str], tuple[int, ...]] = Table(
    {
        ("gather", "index_vector_dim"): (GATHER, 4),
        ("scatter", "index_vector_dim"): (SCATTER, 4),
        ("dot", "algorithm"): (PRECISION, 2),
        ("cholesky", "lower"): (CHOLESKY, 1),
        ("ragged-dot", "lhs_contracting_dims"): (RAGGED, 1, 1),
        ("ragged-dot", "rhs_contracting_dims"): (RAGGED, 1, 2),
        ("ragged-dot", "lhs_batch_dims"): (RAGGED, 1, 3),
        ("ragged-dot", "rhs_batch_dims"): (RAGGED, 1, 4),
        ("ragged-dot", "lhs_ragged_dims"): (RAGGED, 2),
        ("ragged-dot", "rhs_group_dims"): (RAGGED, 3),
    }
)
"""Attributes whose path depends on the operation."""

_DOT_ALGORITHMS = (
    "any_f8_any_f8_f32 any_f8_any_f8_f32_fast_accum f16_f16_f16 f16_f16_f32 bf16_bf16_bf16 "
    "bf16_bf16_f32 bf16_bf16_f32_x3 bf16_bf16_f32_x6 tf32_tf32_f32 tf32_tf32_f32_x3 f32_f32_f32 "
    "f64_f64_f64 bf16_bf16_f32_x9"
)

ENUMS: Table[tuple[int, ...], Table[int, str]] = Table(
    {
        (23,): Table({1: "rng_uniform", 2: "rng_normal"}),
        (31,): Table({0: "FFT", 1: "IFFT", 2: "RFFT", 3: "IRFFT"}),
        (70,): Table({0: "rng_default", 1: "rng_three_fry", 2: "rng_philox"}),
        (76,): Table({1: "SCHEDULE_LATEST", 2: "SCHEDULE_EARLIEST"}),
        (77,): Table(
            {
                2: "API_VERSION_STATUS_RETURNING",
                3: "API_VERSION_STATUS_RETURNING_UNIFIED",
                4: "API_VERSION_TYPED_FFI",
            }
        ),
        (75,): Table({1: "PADDING_VALID", 2: "PADDING_SAME"}),
        (97,): Table({1: "fprop", 2: "dgrad", 3: "wgrad"}),
        (TRIANGULAR, 4): Table({1: "NO_TRANSPOSE", 2: "TRANSPOSE", 3: "ADJOINT"}),
        (PRECISION, 2): Table(
            {n: f"dot_{word}" for n, word in enumerate(_DOT_ALGORITHMS.split(), 1)}
        ),
    }
)
"""Numbers of the words that an attribute may have; a number that is not here means none."""

PRECISIONS = Table({0: "default", 1: "high", 2: "highest"})
"""The words of ``operand_precision``."""

TRISTATE = (96,)
"""A path whose value is 0 for nothing said, 1 for true, 2 for false."""

DEFAULTS = Table({"feature_group_count": 1, "batch_group_count": 1})
"""Defaults of attributes that are left out, other than zero, false and empty."""
