# SPDX-License-Identifier: Apache-2.0
"""Three kernels as PTX: they need neither a compiler nor PyTorch."""

_HEAD = ".version 7.0\n.target sm_70\n.address_size 64\n"

_SPIN = """
.visible .entry spin(.param .u64 nanoseconds) {
  .reg .pred %p1;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [nanoseconds];
  mov.u64 %rd2, %globaltimer;
again:
  mov.u64 %rd3, %globaltimer;
  sub.u64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd1;
  @%p1 bra again;
  ret;
}
"""

_COUNT_WRONG = """
.visible .entry count_wrong(.param .u64 words, .param .u64 number, .param .u32 pattern,
                            .param .u64 counter) {
  .reg .pred %p<3>;
  .reg .b32 %r<10>;
  .reg .b64 %rd<12>;
  ld.param.u64 %rd1, [words];
  ld.param.u64 %rd2, [number];
  ld.param.u32 %r1, [pattern];
  ld.param.u64 %rd3, [counter];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd3, %rd3;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mov.u32 %r5, %nctaid.x;
  mul.wide.u32 %rd4, %r2, %r3;
  cvt.u64.u32 %rd5, %r4;
  add.u64 %rd4, %rd4, %rd5;
  mul.wide.u32 %rd6, %r3, %r5;
  mov.u32 %r6, 0;
next:
  setp.ge.u64 %p1, %rd4, %rd2;
  @%p1 bra done;
  shl.b64 %rd7, %rd4, 2;
  add.u64 %rd8, %rd1, %rd7;
  ld.global.u32 %r7, [%rd8];
  setp.ne.u32 %p2, %r7, %r1;
  @%p2 add.u32 %r6, %r6, 1;
  add.u64 %rd4, %rd4, %rd6;
  bra next;
done:
  setp.eq.u32 %p1, %r6, 0;
  @%p1 ret;
  atom.global.add.u32 %r8, [%rd3], %r6;
  ret;
}
"""

_POKE = """
.visible .entry poke(.param .u64 address) {
  .reg .b32 %r1;
  .reg .b64 %rd1;
  ld.param.u64 %rd1, [address];
  mov.u32 %r1, 1;
  st.global.u32 [%rd1], %r1;
  ret;
}
"""

PTX = (_HEAD + _SPIN + _COUNT_WRONG + _POKE).encode() + b"\0"
"""spin(nanoseconds); count_wrong(words, number, pattern, counter), which adds the number of words
that differ from the pattern to a counter of 32 bits; poke(address), which writes 4 bytes."""
