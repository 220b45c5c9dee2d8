"""Names of models, inputs and outputs as identifiers of C and C++."""

from __future__ import annotations

import re
from collections.abc import Iterable

_WORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
char32_t class co_await co_return co_yield compl concept const const_cast consteval constexpr
constinit continue decltype default delete do double dynamic_cast else enum explicit export extern
false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
operator or or_eq private protected public register reinterpret_cast requires restrict return short
signed sizeof static static_assert static_cast struct switch template this thread_local throw true
try typedef typeid typename typeof typeof_unqual union unsigned using virtual void volatile wchar_t
while xor xor_eq errno linux unix assert main std none BUFSIZ EOF INFINITY NAN NULL RAND_MAX
SIZE_MAX
"""
_KEYWORDS = frozenset(_WORDS.split())
"""Words of C and C++, macros of their usual headers, and names that ours have."""
LONGEST = 48

_SYSTEM_WORDS = """
aio alloca assert atomic c complex cpio crypt ctype devctl dirent dl dlfcn endian errno fcntl
features fenv float fmtmsg fnmatch ftw g gcc gcc_eh gcc_s getopt glob gomp grp iconv inttypes iso646
langinfo libgen libintl limits link locale m malloc math memory monetary mqueue mvec ndbm netdb
nl_types poll pthread pwd regex resolv rt sched search semaphore setjmp signal spawn stdalign
stdarg stdatomic stdbit stdbool stdckdint stddef stdint stdio stdlib stdnoreturn string strings
stropts supc syscall syslog tar termios tgmath threads time trace uchar ucontext ulimit unistd util
utime utmpx values wait wchar wctype wordexp cnd mtx posix_spawnattr pthread_attr pthread_barrier
pthread_cond pthread_mutex pthread_rwlock pthread_spin sem thrd timer tss
"""
_SYSTEM = frozenset(_SYSTEM_WORDS.split())
"""Libraries and headers of C and POSIX that programs get unasked (``-lm``, ``<math.h>``), and what
its functions begin with that end as ours do (``sem_init``)."""


def identifier(name: str, otherwise: str) -> str:
    """Return a name with all but letters and digits as single underscores.

    ``otherwise`` precedes one that would begin with a digit, and stands for one of which nothing is
    left.
    """
    found = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:LONGEST].rstrip("_")
    if not found:
        return otherwise
    if found[0].isdigit():
        found = f"{otherwise}_{found}"
    return f"{found}_" if found in _KEYWORDS else found


def library_name(name: str) -> str:
    """Return the identifier by which a model is a library, with a header of that name.

    It is no name that the system's own libraries, headers or functions have.
    """
    found = identifier(name, "model")
    return f"model_{found}" if found in _SYSTEM else found


def identifiers(names: Iterable[str], otherwise: str) -> tuple[str, ...]:
    """Return an identifier for each name, all different, upper and lower case alike."""
    taken: set[str] = set()
    found = []
    for name in names:
        base = identifier(name, otherwise)
        one, count = base, 1
        while one.upper() in taken:
            count += 1
            one = f"{base}_{count}"
        taken.add(one.upper())
        found.append(one)
    return tuple(found)
