"""Kernels in CUDA C++ on the processor: what they compute, and their faults."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_testing.cuda_on_cpu import (
    CompilerMissing,
    KernelFault,
    Memory,
    Processor,
)

HEAD = "__global__ void kernel(const float* x, float* y, unsigned n) {\n"
SUM = """\
  __shared__ float s[64];
  const unsigned lane = threadIdx.x;
  s[lane] = x[lane + 64 * blockIdx.x];
  __syncthreads();
  for (unsigned half = 32; half; half /= 2) {
    if (lane < half) s[lane] += s[lane + half];
    __syncthreads();
  }
  if (lane == 0) y[blockIdx.x] = s[0];
}
"""
RIGHT = HEAD + SUM
OBJECTS = "struct Of { float x; Of() = default; Of(float v) : x(v) {} };\n" + (
    RIGHT.replace("float s[64]", "Of s[64]")
    .replace("s[lane] += s[lane + half]", "s[lane] = Of(s[lane].x + s[lane + half].x)")
    .replace("y[blockIdx.x] = s[0]", "y[blockIdx.x] = s[0].x")
)

FAULTS = {
    "without the first barrier": (
        HEAD + SUM.replace("__syncthreads();", "", 1),
        r"reads byte \d+ of shared memory, which nobody wrote to|a race",
    ),
    "without the second barrier": (
        HEAD + SUM.replace("    __syncthreads();\n", ""),
        r"a race; in line \d: if \(lane < half\)|a race; in line 10",
    ),
    "reads one too far": (
        HEAD + SUM.replace("x[lane + ", "x[1 + lane + "),
        "reads 4 bytes, 0 bytes beyond the end of buffer 0; in line 4",
    ),
    "writes one too far": (
        HEAD + SUM.replace("y[blockIdx.x]", "y[blockIdx.x + 1]"),
        "writes 4 bytes, 0 bytes beyond the end of buffer 1; in line 10",
    ),
    "writes before": (
        HEAD + "if (threadIdx.x == 0) y[(long)n - 1] = 1.0f; }",
        "writes 4 bytes, 4 bytes before the begin of buffer 1",
    ),
    "writes to what is read": (
        HEAD + "const_cast<float*>(x)[threadIdx.x] = 1.0f; }",
        "writes to buffer 0, which is only read",
    ),
    "beyond shared memory": (
        HEAD + SUM.replace("s[lane] = x", "s[lane + 1] = x"),
        "index out of an array of fixed size",
    ),
    "nothing was written": (
        HEAD + "__shared__ float s[64]; y[threadIdx.x & 1] = s[3]; }",
        "reads byte 12 of shared memory, which nobody wrote to",
    ),
    "two blocks write": (
        HEAD + "if (threadIdx.x == 0) y[0] = float(blockIdx.x); }",
        "writes byte 0 of buffer 1, which lane 0 of another block wrote",
    ),
    "lanes write the same": (
        HEAD + "y[threadIdx.x / 32] = 1.0f; }",
        r"writes byte \d of buffer 1, which lane \d+ wrote, and nothing orders them",
    ),
    "atomic and plain": (
        HEAD + "if (threadIdx.x) atomicAdd(y, 1.0f); else y[0] = 1.0f; }",
        "a race",
    ),
    "no alignment": (
        HEAD + "auto v = *reinterpret_cast<const float4*>(x + 1); y[0] = v.x; }",
        "not aligned",
    ),
    "some lanes end": (
        HEAD + "if (threadIdx.x == 7) return;\n__syncthreads(); }",
        r"is stuck: lane 0 waits in line 3 at __syncthreads, and lane 7 ended",
    ),
    "barriers of branches": (
        HEAD + "if (threadIdx.x < 7)\n__syncthreads();\nelse\n__syncthreads(); }",
        "lane 0 waits in line 3 at __syncthreads, and lane 7 waits in line 5",
    ),
    "some lanes shuffle": (
        HEAD + "if (threadIdx.x & 1) __shfl_sync(~0u, 1, 0);\n__syncthreads(); }",
        "is stuck: lane 0 waits in line 3 at __syncthreads, and lane 1 waits in "
        "line 2 at __shfl_sync",
    ),
    "a lane that is not asked": (
        HEAD + "if (threadIdx.x < 4) __shfl_sync(15u, 1, 9); }",
        "from lane 9 of its warp, which is not there",
    ),
    "a mask without the lane": (
        HEAD + "__syncwarp(15u); }",
        r"lane \d+ of .* is not in the mask 0xf of its __syncwarp",
    ),
    "shuffles order nothing": (
        HEAD + "__shared__ float s[64]; s[threadIdx.x] = 1.0f;\n"
        "__shfl_sync(~0u, 1, 0);\ns[threadIdx.x ^ 1] = 2.0f; }",
        "a race; in line 4",
    ),
    "division by zero": (
        HEAD + "y[0] = float(7 / int(n)); }",
        "divides by zero",
    ),
    "shifts too far": (
        HEAD + "y[0] = float(1u << (n + 40)); }",
        "shifts by more bits",
    ),
    "no memory": (
        HEAD + "y[0] = *reinterpret_cast<const float*>(8ul * (n + 5)); }",
        "reads 4 bytes at 0x28, where no array is",
    ),
    "no end": (
        HEAD + "while (*static_cast<const volatile float*>(y) != 5.0f) {} }",
        "accesses memory without an end",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def processor(request: pytest.FixtureRequest) -> Processor:
    try:
        found = Processor(request.config.cache.mkdir("cuda_on_cpu"))
    except CompilerMissing as error:
        if "g++" in os.environ.get("ONNXPLUG_REQUIRE", ""):
            pytest.fail(str(error))
        pytest.skip(str(error))
    for text in (
        RIGHT,
        OBJECTS,
        COLLECTIVES,
        NARROW,
        *(text for text, _ in FAULTS.values()),
    ):
        found.kernel(text)
    found.compile()
    return found


def memory(array: np.ndarray[Any, Any], *, written: bool = True) -> Memory:
    return Memory(array.ctypes.data, array.nbytes, written)


def run_sum(processor: Processor, text: str, seed: int) -> np.ndarray[Any, Any]:
    room = np.full(128 + 8, 3, np.float32)
    x = room[-room.ctypes.data % 16 // 4 :][:128]
    y = np.zeros(2, np.float32)
    arguments = [memory(x, written=False), memory(y), bytes(4)]
    kernel = processor.kernel(text)
    kernel.launch((2,), (64,), arguments, seed=seed, most_accesses=1 << 20)
    return y


def test_a_right_kernel_is_right_in_any_order(processor: Processor) -> None:
    for seed in range(20):
        np.testing.assert_array_equal(run_sum(processor, RIGHT, seed), [192, 192])
        np.testing.assert_array_equal(run_sum(processor, OBJECTS, seed), [192, 192])


def test_lanes_take_turns_on_other_processors(
    processor: Processor, tmp_path: Path
) -> None:
    portable = Processor(tmp_path, portable=True)
    np.testing.assert_array_equal(run_sum(portable, RIGHT, 0), [192, 192])
    with pytest.raises(KernelFault, match="a race"):
        run_sum(portable, FAULTS["without the second barrier"][0], 0)
    np.testing.assert_array_equal(run_sum(portable, RIGHT, 1), [192, 192])


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_told(name: str, processor: Processor) -> None:
    text, message = FAULTS[name]
    for seed in range(5):
        with pytest.raises(KernelFault, match=message):
            run_sum(processor, text, seed)
    np.testing.assert_array_equal(run_sum(processor, RIGHT, 0), [192, 192])


def test_only_views_are_touched(processor: Processor) -> None:
    x, y = np.ones(64, np.float32), np.zeros(2, np.float32)
    kernel = processor.kernel(RIGHT)
    views = Memory(x.ctypes.data, 256, False, ((0, 128, False), (132, 256, False)))
    with pytest.raises(KernelFault, match="byte 128 of buffer 0, where none"):
        kernel.launch((1,), (64,), [views, memory(y), bytes(4)])


def test_a_text_that_is_no_kernel_is_refused(processor: Processor) -> None:
    kernel = processor.kernel("__global__ void kernel() { nothing = 1; }")
    with pytest.raises(ValueError, match="nothing"):
        kernel.launch((1,), (1,), [])
    with pytest.raises(ValueError, match="1 to 1024 lanes"):
        kernel.launch((1,), (2048,), [])


COLLECTIVES = """\
__global__ void kernel(unsigned* out, unsigned long long* wide) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const unsigned mask = warp == 1 ? 0xffu : 0xffffffffu;
  unsigned* mine = out + threadIdx.x * 16;
  mine[0] = __shfl_sync(mask, lane * 10, 3);
  mine[1] = __shfl_up_sync(mask, lane * 10, 1);
  mine[2] = __shfl_down_sync(mask, lane * 10, 2, 8);
  mine[3] = __shfl_xor_sync(mask, lane * 10, 4);
  mine[4] = __shfl_sync(mask, lane * 10, 1, 4);
  mine[5] = __ballot_sync(mask, lane % 3 == 0);
  mine[6] = __any_sync(mask, lane == 5) + 2u * __all_sync(mask, lane < 7);
  mine[7] = __reduce_add_sync(mask, lane);
  mine[8] = __syncthreads_count(lane < 3);
  mine[9] = __match_any_sync(mask, lane / 2);
  double all[32];
  if (warp == 0) onnxplug_gather(lane * 0.5, all);
  mine[10] = warp == 0 ? unsigned(all[31] * 2.0 + all[1] * 2.0) : 0u;
  extern __shared__ __align__(16) unsigned shared[];
  shared[threadIdx.x] = lane;
  __syncwarp();
  mine[11] = shared[threadIdx.x ^ 1];
  atomicMax(wide, (unsigned long long)(lane) << 40);
  atomicAdd(out + 40 * 16, 1u);
  mine[12] = blockDim.x + gridDim.x;
  mine[13] = __popc(lane) + 100u * __clz(int(lane)) + __umulhi(lane << 28, 1u << 8);
  mine[14] = __byte_perm(0x33221100u, 0x77665544u, 0x7040u + lane % 8);
  mine[15] = unsigned(__float2int_rz(-1e20f) == -2147483647 - 1);
}
"""


def test_lanes_of_a_warp_compute_together(processor: Processor) -> None:
    """A block of a whole warp and one of eight lanes, told by numpy."""
    out, wide = np.zeros((41, 16), np.uint32), np.zeros(1, np.uint64)
    processor.kernel(COLLECTIVES).launch(
        (1,), (40,), [memory(out), memory(wide)], dynamic=160
    )
    for lanes, found in ((32, out[:32]), (8, out[32:40])):
        lane = np.arange(lanes)
        expected = [
            np.full(lanes, 30),
            np.where(lane < 1, lane, lane - 1) * 10,
            np.where(lane % 8 > 5, lane, lane + 2) * 10,
            (lane ^ 4) * 10,
            (lane // 4 * 4 + 1) * 10,
            np.full(lanes, sum(1 << n for n in range(0, lanes, 3))),
            np.full(lanes, 1),
            np.full(lanes, lane.sum()),
            np.full(lanes, 6),
            3 << (lane // 2 * 2),
            np.full(lanes, 32 if lanes == 32 else 0),
            lane ^ 1,
            np.full(lanes, 41),
            [
                n.bit_count() + 100 * (32 - n.bit_length())
                + (((n << 28) % (1 << 32)) >> 24)
                for n in range(lanes)
            ],
            [0x77004400 + 0x11 * (n % 8) for n in range(lanes)],
            np.full(lanes, 1),
        ]  # fmt: skip
        for number, each in enumerate(expected):
            np.testing.assert_array_equal(found[:, number], each, str(number))
    assert out[40, 0] == 40
    assert wide[0] == 31 << 40


NARROW = """\
__global__ void kernel(const float* x, unsigned short* y, const unsigned short* bits,
                       float* z, unsigned n, unsigned count) {
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < n) {
    y[at] = __half_as_ushort(__float2half_rn(x[at]));
    y[at + n] = __bfloat16_as_ushort(__float2bfloat16_rn(x[at]));
    y[at + 2 * n] = __nv_cvt_float_to_fp8(x[at], __NV_NOSAT, __NV_E4M3);
    y[at + 3 * n] = __nv_cvt_float_to_fp8(x[at], __NV_NOSAT, __NV_E5M2);
    y[at + 4 * n] = __nv_cvt_float_to_fp8(x[at], __NV_SATFINITE, __NV_E4M3);
  }
  if (at < count) {
    z[at] = __half2float(__ushort_as_half(bits[at]));
    z[at + count] = __bfloat162float(__ushort_as_bfloat16(bits[at]));
    const unsigned char byte = bits[at] & 0xff;
    const __half_raw wide = __nv_cvt_fp8_to_halfraw(byte, __NV_E4M3);
    z[at + 2 * count] = __half2float(__ushort_as_half(wide.x));
  }
}
"""


def test_floats_of_fewer_bits_are_those_of_numpy(processor: Processor) -> None:
    """All halves and bfloat16s, and floats between neighbours of each format."""
    rng = np.random.default_rng(0)
    every = np.arange(1 << 16, dtype=np.uint16)
    near = every.view(np.float16).astype(np.float32)
    near = near[np.isfinite(near)][::7]
    ends = [np.inf, -np.inf, 448, 464, 465, 57344, 61439, 61441]
    x = np.concatenate(
        [
            *(near, np.nextafter(near, np.float32(np.inf))),
            (near + np.roll(near, 1)) / 2,
            rng.integers(0, 2**32, 4000, np.uint32).view(np.float32),
            np.array(ends, np.float32),
        ]
    )
    x = np.ascontiguousarray(x[~np.isnan(x)])
    y = np.zeros((5, x.size), np.uint16)
    z = np.zeros((3, every.size), np.float32)
    processor.kernel(NARROW).launch(
        (-(-max(x.size, every.size) // 256),), (256,),
        [
            memory(x, written=False), memory(y), memory(every, written=False),
            memory(z), struct.pack("<I", x.size), struct.pack("<I", every.size),
        ],
    )  # fmt: skip
    with np.errstate(all="ignore"):
        for found, kind in zip(
            y, (np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn,
                ml_dtypes.float8_e5m2), strict=False,
        ):  # fmt: skip
            bits = x.astype(kind).view(f"u{np.dtype(kind).itemsize}")
            signless = np.isnan(x.astype(kind))
            np.testing.assert_array_equal(found[~signless], bits[~signless])
    finite = np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    np.testing.assert_array_equal(y[4], finite)
    for found, wide in zip(
        z,
        (
            every.view(np.float16).astype(np.float32),
            every.view(ml_dtypes.bfloat16).astype(np.float32),
            (every & 0xFF).astype(np.uint8).view(ml_dtypes.float8_e4m3fn).astype("f4"),
        ),
        strict=True,
    ):
        np.testing.assert_array_equal(found, wide)
