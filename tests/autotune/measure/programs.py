"""Small programs of every kind of group, in odd extents: what faults are planted in."""

from __future__ import annotations

SUM = "c0 {\n a = TYPE[] parameter(0)\n b = TYPE[] parameter(1)\n ROOT c = TYPE[] add(a, b)\n}\n"
MAX = SUM.replace("add", "maximum").replace("c0", "c1")


def _module(body: str, *computations: str) -> str:
    head = "".join(computations)
    return f"HloModule m\n\n{head}\nENTRY e {{\n{body}}}\n"


TEXTS: dict[str, str] = {
    "dot": _module(
        " x = f32[33,47] parameter(0)\n w = f32[47,29] parameter(1)\n"
        " ROOT y = f32[33,29] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    ),
    "square dot of a frozen factor": _module(
        " x = f32[32,32] parameter(0)\n w = f32[32,32] parameter(1), frozen=true\n"
        " d = f32[32,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        " z = f32[] constant(0)\n zz = f32[32,32] broadcast(z), dimensions={}\n"
        " ROOT y = f32[32,32] maximum(d, zz)\n"
    ),
    "dot of bytes": _module(
        " x = s8[17,40] parameter(0)\n w = s8[40,21] parameter(1)\n"
        " ROOT y = s32[17,21] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    ),
    "dot in bf16": _module(
        " x = bf16[19,64] parameter(0)\n w = bf16[64,24] parameter(1)\n"
        " ROOT y = bf16[19,24] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    ),
    "softmax": _module(
        " x = f32[21,50] parameter(0)\n low = f32[] constant(-inf)\n z = f32[] constant(0)\n"
        " m = f32[21] reduce(x, low), dimensions={1}, to_apply=c1\n"
        " mm = f32[21,50] broadcast(m), dimensions={0}\n s = f32[21,50] subtract(x, mm)\n"
        " e = f32[21,50] exponential(s)\n t = f32[21] reduce(e, z), dimensions={1}, to_apply=c0\n"
        " tt = f32[21,50] broadcast(t), dimensions={0}\n ROOT y = f32[21,50] divide(e, tt)\n",
        SUM.replace("TYPE", "f32"),
        MAX.replace("TYPE", "f32"),
    ),
    "variance": _module(
        " x = f32[30,37] parameter(0)\n z = f32[] constant(0)\n n = f32[] constant(37)\n"
        " nn = f32[30] broadcast(n), dimensions={}\n"
        " t = f32[30] reduce(x, z), dimensions={1}, to_apply=c0\n m = f32[30] divide(t, nn)\n"
        " mm = f32[30,37] broadcast(m), dimensions={0}\n d = f32[30,37] subtract(x, mm)\n"
        " q = f32[30,37] multiply(d, d)\n v = f32[30] reduce(q, z), dimensions={1}, to_apply=c0\n"
        " ROOT y = f32[30] divide(v, nn)\n",
        SUM.replace("TYPE", "f32"),
    ),
    "total": _module(
        " x = f32[77,61] parameter(0)\n z = f32[] constant(0)\n"
        " ROOT y = f32[] reduce(x, z), dimensions={0,1}, to_apply=c0\n",
        SUM.replace("TYPE", "f32"),
    ),
    "column sums in f16": _module(
        " x = f16[45,33] parameter(0)\n z = f16[] constant(0)\n"
        " ROOT y = f16[33] reduce(x, z), dimensions={0}, to_apply=c0\n",
        SUM.replace("TYPE", "f16"),
    ),
    "column sums of integers": _module(
        " x = s32[45,33] parameter(0)\n z = s32[] constant(0)\n"
        " ROOT y = s32[33] reduce(x, z), dimensions={0}, to_apply=c0\n",
        SUM.replace("TYPE", "s32"),
    ),
    "convolution": _module(
        " x = f32[1,13,15,3] parameter(0)\n w = f32[3,3,3,5] parameter(1)\n"
        " ROOT y = f32[1,13,15,5] convolution(x, w), window={size=3x3 pad=1_1x1_1},"
        " dim_labels=b01f_01io->b01f\n"
    ),
    "maximum of windows": _module(
        " x = f32[1,14,14,6] parameter(0)\n low = f32[] constant(-inf)\n"
        " ROOT y = f32[1,7,7,6] reduce-window(x, low), window={size=1x3x3x1 stride=1x2x2x1"
        " pad=0_0x1_0x1_0x0_0}, to_apply=c1\n",
        MAX.replace("TYPE", "f32"),
    ),
    "running sums": _module(
        " x = f32[18,27] parameter(0)\n z = f32[] constant(0)\n"
        " ROOT y = f32[18,27] reduce-window(x, z), window={size=1x27 pad=0_0x26_0}, to_apply=c0\n",
        SUM.replace("TYPE", "f32"),
    ),
    "transposed sum": _module(
        " x = f32[34,34] parameter(0)\n t = f32[34,34] transpose(x), dimensions={1,0}\n"
        " k = f32[] constant(0.3)\n kk = f32[34,34] broadcast(k), dimensions={}\n"
        " s = f32[34,34] multiply(t, kk)\n ROOT y = f32[34,34] add(x, s)\n"
    ),
    "activation in f16": _module(
        " x = f16[29,31] parameter(0)\n z = f16[] constant(0)\n"
        " zz = f16[29,31] broadcast(z), dimensions={}\n ROOT y = f16[29,31] maximum(x, zz)\n"
    ),
    "comparison": _module(
        " x = f32[25,35] parameter(0)\n w = f32[25,35] parameter(1)\n"
        " a = f32[25,35] exponential(x)\n"
        " ROOT y = pred[25,35] compare(a, w), direction=GT\n"
    ),
    "rounded to integers": _module(
        " x = f32[500] parameter(0)\n k = f32[] constant(17.5)\n"
        " kk = f32[500] broadcast(k), dimensions={}\n m = f32[500] multiply(x, kk)\n"
        " s = f32[500] sine(m)\n t = f32[500] multiply(s, kk)\n ROOT y = s32[500] convert(t)\n"
    ),
    "rows by index": _module(
        " x = f32[20,16] parameter(0)\n i = s32[37] parameter(1)\n"
        " ROOT y = f32[37,16] gather(x, i), offset_dims={1}, collapsed_slice_dims={0},"
        " start_index_map={0}, index_vector_dim=1, slice_sizes={1,16}\n"
    ),
    "wide and narrow": _module(
        " x = f32[203] parameter(0)\n c = bf16[203] convert(x)\n k = bf16[] constant(1.5)\n"
        " kk = bf16[203] broadcast(k), dimensions={}\n m = bf16[203] multiply(c, kk)\n"
        " p = bf16[] constant(0)\n ROOT y = bf16[210] pad(m, p), padding=3_4\n"
    ),
    "f64": _module(
        " x = f64[23,19] parameter(0)\n w = f64[19,31] parameter(1)\n"
        " d = f64[23,31] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
        " ROOT y = f64[23,31] tanh(d)\n"
    ),
}
