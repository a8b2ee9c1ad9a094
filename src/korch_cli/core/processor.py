"""What code may need of a processor, and how a program finds out whether it is there."""

from __future__ import annotations

from dataclasses import dataclass

NATIVE = "native"
LEVELS = ("x86-64-v3", "x86-64-v4")
"""Levels of the x86-64 psABI: the third has AVX2 and FMA, the fourth AVX-512 besides."""
PROCESSORS = (NATIVE, *LEVELS)
"""What kernels can be built for: the processor at hand, or all of one level."""


@dataclass(frozen=True, slots=True)
class Feature:
    """An extension of an instruction set that a compiler uses where its flags allow it.

    Attributes:
        name: as Linux spells it in /proc/cpuinfo.
        macro: what compilers define where they may use it.
        word: on x86-64 a leaf of `cpuid`, on aarch64 an entry of the auxiliary vector.
        part: subleaf of `cpuid`.
        register: 0 to 3 for EAX to EDX.
        bit: that says the extension is there.
    """

    name: str
    macro: str
    word: int
    part: int
    register: int
    bit: int


_EAX, _EBX, _ECX, _EDX = range(4)
_HWCAP, _HWCAP2 = 16, 26
FEATURES = (
    Feature("pni", "__SSE3__", 1, 0, _ECX, 0),
    Feature("ssse3", "__SSSE3__", 1, 0, _ECX, 9),
    Feature("fma", "__FMA__", 1, 0, _ECX, 12),
    Feature("sse4_1", "__SSE4_1__", 1, 0, _ECX, 19),
    Feature("sse4_2", "__SSE4_2__", 1, 0, _ECX, 20),
    Feature("movbe", "__MOVBE__", 1, 0, _ECX, 22),
    Feature("popcnt", "__POPCNT__", 1, 0, _ECX, 23),
    Feature("avx", "__AVX__", 1, 0, _ECX, 28),
    Feature("f16c", "__F16C__", 1, 0, _ECX, 29),
    Feature("bmi1", "__BMI__", 7, 0, _EBX, 3),
    Feature("avx2", "__AVX2__", 7, 0, _EBX, 5),
    Feature("bmi2", "__BMI2__", 7, 0, _EBX, 8),
    Feature("avx512f", "__AVX512F__", 7, 0, _EBX, 16),
    Feature("avx512dq", "__AVX512DQ__", 7, 0, _EBX, 17),
    Feature("avx512ifma", "__AVX512IFMA__", 7, 0, _EBX, 21),
    Feature("avx512cd", "__AVX512CD__", 7, 0, _EBX, 28),
    Feature("avx512bw", "__AVX512BW__", 7, 0, _EBX, 30),
    Feature("avx512vl", "__AVX512VL__", 7, 0, _EBX, 31),
    Feature("avx512vbmi", "__AVX512VBMI__", 7, 0, _ECX, 1),
    Feature("avx512_vbmi2", "__AVX512VBMI2__", 7, 0, _ECX, 6),
    Feature("gfni", "__GFNI__", 7, 0, _ECX, 8),
    Feature("avx512_vnni", "__AVX512VNNI__", 7, 0, _ECX, 11),
    Feature("avx512_bitalg", "__AVX512BITALG__", 7, 0, _ECX, 12),
    Feature("avx512_vpopcntdq", "__AVX512VPOPCNTDQ__", 7, 0, _ECX, 14),
    Feature("avx512_fp16", "__AVX512FP16__", 7, 0, _EDX, 23),
    Feature("avx_vnni", "__AVXVNNI__", 7, 1, _EAX, 4),
    Feature("avx512_bf16", "__AVX512BF16__", 7, 1, _EAX, 5),
    Feature("abm", "__LZCNT__", 0x80000001, 0, _ECX, 5),
    Feature("sse4a", "__SSE4A__", 0x80000001, 0, _ECX, 6),
    Feature("xop", "__XOP__", 0x80000001, 0, _ECX, 11),
    Feature("fma4", "__FMA4__", 0x80000001, 0, _ECX, 16),
    Feature("tbm", "__TBM__", 0x80000001, 0, _ECX, 21),
    Feature("atomics", "__ARM_FEATURE_ATOMICS", _HWCAP, 0, 0, 8),
    Feature("asimdhp", "__ARM_FEATURE_FP16_VECTOR_ARITHMETIC", _HWCAP, 0, 0, 10),
    Feature("asimdrdm", "__ARM_FEATURE_QRDMX", _HWCAP, 0, 0, 12),
    Feature("fcma", "__ARM_FEATURE_COMPLEX", _HWCAP, 0, 0, 14),
    Feature("lrcpc", "__ARM_FEATURE_RCPC", _HWCAP, 0, 0, 15),
    Feature("asimddp", "__ARM_FEATURE_DOTPROD", _HWCAP, 0, 0, 20),
    Feature("sve", "__ARM_FEATURE_SVE", _HWCAP, 0, 0, 22),
    Feature("asimdfhm", "__ARM_FEATURE_FP16_FML", _HWCAP, 0, 0, 23),
    Feature("sve2", "__ARM_FEATURE_SVE2", _HWCAP2, 0, 0, 1),
    Feature("i8mm", "__ARM_FEATURE_MATMUL_INT8", _HWCAP2, 0, 0, 13),
    Feature("bf16", "__ARM_FEATURE_BF16", _HWCAP2, 0, 0, 14),
)
"""What compilers may put into code for kernels; those of cryptography and of system programs are left out."""


def needed_features(macros: frozenset[str]) -> tuple[Feature, ...]:
    """Return what code may use that was compiled with these macros defined."""
    return tuple(feature for feature in FEATURES if feature.macro in macros)
