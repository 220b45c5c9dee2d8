"""Special functions of CHLO as formulas over HLO's element-wise operations, in f32 or f64."""

from __future__ import annotations

from math import inf, log, nan, pi

from .term import Term

LANCZOS_G = 7.0
LANCZOS_BASE = 0.99999999999980993
LANCZOS = (
    676.520368121885098,
    -1259.13921672240287,
    771.323428777653078,
    -176.615029162140599,
    12.5073432786869048,
    -0.138571095265720116,
    9.98436957801957086e-6,
    1.50563273514931155e-7,
)
"""Lanczos's series of the gamma function for g = 7 and nine terms (SIAM J. Num. Anal. 1, 1964)."""


def _series(x: Term) -> tuple[Term, Term, Term, Term]:
    """Return x < 1/2 (which is reflected), z with x = z + 1, the series at z, and log(z + g + 1/2).

    The logarithm is taken apart so that a constant carries its large part.
    """
    low = x < 0.5
    z = low.select(-x, x - 1)
    series = z.number(LANCZOS_BASE)
    for k, c in enumerate(LANCZOS):
        series = series + c / (z + (k + 1))
    top = LANCZOS_G + 0.5
    return low, z, series, log(top) + (z / top).do("log-plus-one")


def lgamma(x: Term) -> Term:
    """log |gamma(x)|, by Lanczos's series and Euler's reflection below 1/2.

    The largest term is written as a product, so that it does not overflow before the result; the
    sine of the reflection is taken of the distance to the nearest integer, where it is accurate.
    """
    low, z, series, log_t = _series(x)
    t = z + (LANCZOS_G + 0.5)
    value = (z + 0.5 - t / log_t) * log_t + log(2 * pi) / 2 + series.do("log")
    size = x.do("abs")
    part = size - size.do("floor")
    part = (part > 0.5).select(1 - part, part)
    sine = (part * pi).do("sine").do("log")
    mirrored = sine.do("is-finite").select(log(pi) - sine - value, -sine)
    return (size.equals(inf)).select(inf, low.select(mirrored, value))


def digamma(x: Term) -> Term:
    """The derivative of lgamma, term by term; NaN at its poles."""
    low, z, series, log_t = _series(x)
    slope = z.number(0)
    for k, c in enumerate(LANCZOS):
        place = z + (k + 1)
        slope = slope - c / (place * place)
    value = log_t + slope / series - LANCZOS_G / (z + (LANCZOS_G + 0.5))
    angle = (x + (x + 0.5).do("floor").do("abs")) * pi
    mirrored = value - pi * angle.do("cosine") / angle.do("sine")
    pole = (x <= 0) & x.equals(x.do("floor"))
    return pole.select(nan, low.select(mirrored, value))


EULER_MACLAURIN = (
    -7.1661652561756670113e18,
    1.8152105401943546773e17,
    -4.5979787224074726105e15,
    1.1646782814350067249e14,
    -2.950130727918164224e12,
    7.47242496e10,
    -1.8924375803183791606e9,
    47900160.0,
    -1209600.0,
    30240.0,
    -720.0,
    12.0,
)
"""(2k)! / B_2k for k from 12 down to 1."""
SUMMED = 9


def zeta(x: Term, q: Term) -> Term:
    """Hurwitz's zeta function, the sum of (q + k)^-x: ten terms, and Euler and Maclaurin's tail.

    F. Johansson, "Rigorous high-precision computation of the Hurwitz zeta function and its
    derivatives" (Numerical Algorithms 69, 2015), formula 5. Infinite at x = 1; NaN below, and at
    q <= 0 unless x is an even integer and q an integer, where it is infinite.
    """
    minus, at = -x, q
    total = q.do("power", minus)
    for _ in range(SUMMED):
        at = at + 1
        total = total + at.do("power", minus)
    at = at + 1
    last = at.do("power", minus)
    square = 1 / (at * at)
    tail = x.number(0)
    for k, c in enumerate(EULER_MACLAURIN[:-1]):
        high = 2 * (len(EULER_MACLAURIN) - 1 - k)
        tail = (x + high) * (x + (high - 1)) * (square * (tail + 1 / c))
    tail = last * (x / at * (tail + 1 / EULER_MACLAURIN[-1]) + 0.5)
    whole = total + last * at / (x - 1) + tail
    negligible = last.equals(0)  # then products of it with infinite ones would be NaN
    value = negligible.select(total, whole)
    value = (x < 1).select(nan, value)
    below, integer = q <= 0, x.equals(x.do("floor"))
    value = (below & x.differs(x.do("floor"))).select(nan, value)
    even = integer & x.do("remainder", 2).equals(0)
    pole = below & q.equals(q.do("floor"))
    value = pole.select(even.select(value.number(inf), nan), value)
    return x.equals(1).select(inf, value)


def polygamma(n: Term, x: Term) -> Term:
    """Derivative ``n`` of digamma: (-1)^(n+1) n! zeta(n + 1, x); NaN unless n is a whole number."""
    sign = n.do("remainder", 2) * 2 - 1
    value = sign * lgamma(n + 1).do("exponential") * zeta(n + 1, x)
    value = n.equals(0).select(digamma(x), value)
    return ((n < 0) | n.differs(n.do("floor"))).select(nan, value)


GILES_F32 = (
    (
        2.81022636e-08,
        3.43273939e-07,
        -3.5233877e-06,
        -4.39150654e-06,
        0.00021858087,
        -0.00125372503,
        -0.00417768164,
        0.246640727,
        1.50140941,
    ),
    (
        -0.000200214257,
        0.000100950558,
        0.00134934322,
        -0.00367342844,
        0.00573950773,
        -0.0076224613,
        0.00943887047,
        1.00167406,
        2.83297682,
    ),
)
GILES_F64 = (
    (
        -3.6444120640178196996e-21,
        -1.685059138182016589e-19,
        1.2858480715256400167e-18,
        1.115787767802518096e-17,
        -1.333171662854620906e-16,
        2.0972767875968561637e-17,
        6.6376381343583238325e-15,
        -4.0545662729752068639e-14,
        -8.1519341976054721522e-14,
        2.6335093153082322977e-12,
        -1.2975133253453532498e-11,
        -5.4154120542946279317e-11,
        1.051212273321532285e-09,
        -4.1126339803469836976e-09,
        -2.9070369957882005086e-08,
        4.2347877827932403518e-07,
        -1.3654692000834678645e-06,
        -1.3882523362786468719e-05,
        0.0001867342080340571352,
        -0.00074070253416626697512,
        -0.0060336708714301490533,
        0.24015818242558961693,
        1.6536545626831027356,
    ),
    (
        2.2137376921775787049e-09,
        9.0756561938885390979e-08,
        -2.7517406297064545428e-07,
        1.8239629214389227755e-08,
        1.5027403968909827627e-06,
        -4.013867526981545969e-06,
        2.9234449089955446044e-06,
        1.2475304481671778723e-05,
        -4.7318229009055733981e-05,
        6.8284851459573175448e-05,
        2.4031110387097893999e-05,
        -0.0003550375203628474796,
        0.00095328937973738049703,
        -0.0016882755560235047313,
        0.0024914420961078508066,
        -0.0037512085075692412107,
        0.005370914553590063617,
        1.0052589676941592334,
        3.0838856104922207635,
    ),
    (
        -2.7109920616438573243e-11,
        -2.5556418169965252055e-10,
        1.5076572693500548083e-09,
        -3.7894654401267369937e-09,
        7.6157012080783393804e-09,
        -1.4960026627149240478e-08,
        2.9147953450901080826e-08,
        -6.7711997758452339498e-08,
        2.2900482228026654717e-07,
        -9.9298272942317002539e-07,
        4.5260625972231537039e-06,
        -1.9681778105531670567e-05,
        7.5995277030017761139e-05,
        -0.00021503011930044477347,
        -0.00013871931833623122026,
        1.0103004648645343977,
        4.8499064014085844221,
    ),
)


def erf_inv(x: Term) -> Term:
    """The inverse of the error function: polynomials in w = -log(1 - x^2), and in its root.

    M. Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011). Infinite at -1, 1.
    """
    w = -((-x * x).do("log-plus-one"))
    root = w.do("sqrt")
    if x.shape.dtype.bits == 64:
        tail = (root - 5).polynomial(GILES_F64[2])
        tail = (w < 16).select((root - 3.25).polynomial(GILES_F64[1]), tail)
        value = (w < 6.25).select((w - 3.125).polynomial(GILES_F64[0]), tail)
    else:
        tail = (root - 3).polynomial(GILES_F32[1])
        value = (w < 5).select((w - 2.5).polynomial(GILES_F32[0]), tail)
    return x.do("abs").equals(1).select(x * inf, value * x)


BESSEL_NEAR = (
    2.77791411276104639959e-18,
    -2.11142121435816608115e-17,
    1.55363195773620046921e-16,
    -1.10559694773538630805e-15,
    7.60068429473540693410e-15,
    -5.04218550472791168711e-14,
    3.22379336594557470981e-13,
    -1.98397439776494371520e-12,
    1.17361862988909016308e-11,
    -6.66348972350202774223e-11,
    3.62559028155211703701e-10,
    -1.88724975172282928790e-9,
    9.38153738649577178388e-9,
    -4.44505912879632808065e-8,
    2.00329475355213526229e-7,
    -8.56872026469545474066e-7,
    3.47025130813767847674e-6,
    -1.32731636560394358279e-5,
    4.78156510755005422638e-5,
    -1.61760815825896745588e-4,
    5.12285956168575772895e-4,
    -1.51357245063125314899e-3,
    4.15642294431288815669e-3,
    -1.05640848946261981558e-2,
    2.47264490306265168283e-2,
    -5.29459812080949914269e-2,
    1.02643658689847095384e-1,
    -1.76416518357834055153e-1,
    2.52587186443633654823e-1,
)
BESSEL_FAR = (
    7.51729631084210481353e-18,
    4.41434832307170791151e-18,
    -4.65030536848935832153e-17,
    -3.20952592199342395980e-17,
    2.96262899764595013876e-16,
    3.30820231092092828324e-16,
    -1.88035477551078244854e-15,
    -3.81440307243700780478e-15,
    1.04202769841288027642e-14,
    4.27244001671195135429e-14,
    -2.10154184277266431302e-14,
    -4.08355111109219731823e-13,
    -7.19855177624590851209e-13,
    2.03562854414708950722e-12,
    1.41258074366137813316e-11,
    3.25260358301548823856e-11,
    -1.89749581235054123450e-11,
    -5.58974346219658380687e-10,
    -3.83538038596423702205e-9,
    -2.63146884688951950684e-8,
    -2.51223623787020892529e-7,
    -3.88256480887769039346e-6,
    -1.10588938762623716291e-4,
    -9.76109749136146840777e-3,
    7.78576235018280120474e-1,
)
"""Chebyshev series of the Cephes library (S. Moshier, 1989) for |x| <= 8 and above."""


def bessel_i1e(x: Term) -> Term:
    """exp(-|x|) I1(x), the modified Bessel function of order 1, scaled."""
    size = x.do("abs")
    single = x.shape.dtype.bits == 32  # terms below its precision are left out
    near = size * (size * 0.5 - 2).chebyshev(BESSEL_NEAR[-17:] if single else BESSEL_NEAR)
    far = (32 / size - 2).chebyshev(BESSEL_FAR[-7:] if single else BESSEL_FAR)
    far = far / size.do("sqrt")
    return x.do("sign") * (size <= 8).select(near, far)


BESSEL_0_NEAR = (
    -4.4153416464793393795e-18,
    3.33079451882223809783e-17,
    -2.43127984654795469359e-16,
    1.71539128555513303061e-15,
    -1.16853328779934516808e-14,
    7.67618549860493561688e-14,
    -4.8564467831119294609e-13,
    2.95505266312963983461e-12,
    -1.72682629144155570723e-11,
    9.67580903537323691224e-11,
    -5.18979560163526290666e-10,
    2.65982372468238665035e-9,
    -1.30002500998624804212e-8,
    6.04699502254191894932e-8,
    -2.67079385394061173391e-7,
    1.11738753912010371815e-6,
    -4.41673835845875056359e-6,
    1.64484480707288970893e-5,
    -5.75419501008210370398e-5,
    1.88502885095841655729e-4,
    -5.76375574538582365885e-4,
    1.63947561694133579842e-3,
    -4.3243099950505759443e-3,
    1.05464603945949983183e-2,
    -2.37374148058994688156e-2,
    4.93052842396707084878e-2,
    -9.4901097048047644421e-2,
    1.71620901522208775349e-1,
    -3.04682672343198398683e-1,
    6.76795274409476084995e-1,
)
BESSEL_0_FAR = (
    -7.23318048787475395456e-18,
    -4.83050448594418207126e-18,
    4.46562142029675999901e-17,
    3.4612228676974610931e-17,
    -2.82762398051658348494e-16,
    -3.42548561967721913462e-16,
    1.7725601330565263836e-15,
    3.81168066935262242075e-15,
    -9.5548466988283076487e-15,
    -4.15056934728722208663e-14,
    1.54008621752140982691e-14,
    3.85277838274214270114e-13,
    7.18012445138366623367e-13,
    -1.79417853150680611778e-12,
    -1.32158118404477131188e-11,
    -3.14991652796324136454e-11,
    1.18891471078464383424e-11,
    4.9406023882249695891e-10,
    3.39623202570838634515e-9,
    2.26666899049817806459e-8,
    2.04891858946906374183e-7,
    2.89137052083475648297e-6,
    6.88975834691682398426e-5,
    3.3691164782556940899e-3,
    8.04490411014108831608e-1,
)
"""Chebyshev series of exp(-x) I0(x) for x up to 8, and of its product with sqrt(x) above."""


def bessel_i0e(x: Term) -> Term:
    """exp(-|x|) I0(x), the modified Bessel function of order 0, scaled."""
    size = x.do("abs")
    single = x.shape.dtype.bits == 32  # terms below its precision are left out
    near = (size * 0.5 - 2).chebyshev(BESSEL_0_NEAR[-18:] if single else BESSEL_0_NEAR)
    far = (32 / size - 2).chebyshev(BESSEL_0_FAR[-7:] if single else BESSEL_0_FAR)
    return (size <= 8).select(near, far / size.do("sqrt"))
