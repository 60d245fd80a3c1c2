"""Machine code in a process whose address space has little room left, and that far apart."""

from __future__ import annotations

import subprocess
import sys

# Walls of address space, with a page free in each: whatever is mapped next is 4 GB away from what was mapped before.
PROGRAM = """
import ctypes

from headwater import Interest

PAGE, WALL = 4096, 4 << 30
NOTHING, PRIVATE_ANONYMOUS_UNRESERVED = 0, 0x4022
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)


def taken(size):
    return libc.mmap(None, size, NOTHING, PRIVATE_ANONYMOUS_UNRESERVED, -1, 0)


def interest(number):
    text = f"level > 0.5 and network like '%x{number}%' and who in ('Ann', 'Bo{number}') and sqrt(level) < 9.25"
    return Interest(text, "level: f64, network: text, who: text")


interest(0).start().wait()  # all that is loaded once is there
walls = sorted(taken(WALL) for _ in range(12))
while taken(PAGE) > walls[0]:  # every gap above them is filled
    pass
for wall in walls:
    libc.munmap(wall + 64 * PAGE, PAGE)
for number in range(1, 4):
    it = interest(number)
    run = it.start().wait()
    events = [{"level": 4.0, "network": f"-x{number}-", "who": who} for who in ("Ann", f"Bo{number}", "Cy")]
    found = [run.test(it.type.encode(event)) for event in events]
    assert found == [True, True, False], found
print("judged")
"""


def test_code_finds_its_constants_however_scattered_free_memory_is() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "judged\n"), done.stderr[-2000:]
