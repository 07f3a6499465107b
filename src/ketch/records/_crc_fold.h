/* CRC-32 of zlib, 64 bytes at a time, by carry-less multiplication (PCLMULQDQ, any x86-64 processor since 2013).

   The remainder of a message that was folded into 16 bytes is the remainder of the message itself. So this folds, and
   the caller goes on with its table from a register of 0. The numbers are x^n mod P(x), bits reversed, for the distance
   n that a half of a lane is moved by: 512 bits (four lanes side by side) or 128. See Gopal et al., "Fast CRC
   Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009. */

#ifndef KETCH_CRC_FOLD_H
#define KETCH_CRC_FOLD_H

#include <stdint.h>

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

static int crc_folds(void) {
  return __builtin_cpu_supports("pclmul") != 0;
}

#define KETCH_FOLDED(lane, by, next)                                                       \
  _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(lane, by, 0x00), _mm_clmulepi64_si128(lane, by, 0x11)), next)

/* Folds `size` bytes, a multiple of 16 and 64 at least, into 16; the register begins with all bits set. */
__attribute__((target("pclmul"))) static void crc_fold(const uint8_t *data, int64_t size, uint8_t *folded) {
  const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
  const __m128i by_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
  const __m128i *p = (const __m128i *)data;
  const __m128i *end = p + size / 16;
  __m128i a = _mm_xor_si128(_mm_loadu_si128(p), _mm_cvtsi32_si128(-1));
  __m128i b = _mm_loadu_si128(p + 1);
  __m128i c = _mm_loadu_si128(p + 2);
  __m128i d = _mm_loadu_si128(p + 3);
  for (p += 4; end - p >= 4; p += 4) {
    a = KETCH_FOLDED(a, by_512, _mm_loadu_si128(p));
    b = KETCH_FOLDED(b, by_512, _mm_loadu_si128(p + 1));
    c = KETCH_FOLDED(c, by_512, _mm_loadu_si128(p + 2));
    d = KETCH_FOLDED(d, by_512, _mm_loadu_si128(p + 3));
  }
  b = KETCH_FOLDED(a, by_128, b);
  c = KETCH_FOLDED(b, by_128, c);
  d = KETCH_FOLDED(c, by_128, d);
  for (; p < end; p++) d = KETCH_FOLDED(d, by_128, _mm_loadu_si128(p));
  _mm_storeu_si128((__m128i *)folded, d);
}

#else

static int crc_folds(void) {
  return 0;
}

static void crc_fold(const uint8_t *data, int64_t size, uint8_t *folded) {
  (void)data, (void)size, (void)folded;
}

#endif

#endif
