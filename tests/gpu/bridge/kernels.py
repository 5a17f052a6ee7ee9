"""Kernels as PTX: text that every driver compiles for its GPU, so that nothing is built beforehand.

``BASIC`` is for every GPU that CUDA 13 knows (from sm_75 on), ``HOPPER`` for clusters and tensor
maps, ``TEXTURES`` for what reads through a texture. ``tests/gpu/test_bridged_api.py`` says how
they are checked without a GPU.
"""

_HEAD = ".version {version}\n.target {target}\n.address_size 64\n"

BASIC = (
    _HEAD.format(version="7.0", target="sm_75")
    + r"""
.visible .global .align 8 .u64 counter = 5;
.visible .const .align 4 .u32 table[4] = {11, 22, 33, 44};

.visible .entry empty() { ret; }

// p[0] += v
.visible .entry add(.param .u64 p, .param .u32 v) {
  .reg .u64 %rd<3>; .reg .u32 %r<3>;
  ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd2, %rd1; ld.param.u32 %r1, [v];
  red.global.add.u32 [%rd2], %r1; ret;
}

// p[i] = first + i, for i < n
.visible .entry fill(.param .u64 p, .param .u32 n, .param .u32 first) {
  .reg .pred %q; .reg .u64 %rd<4>; .reg .u32 %r<8>;
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;
  ld.param.u32 %r5, [n]; setp.ge.u32 %q, %r4, %r5; @%q ret;
  ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd2, %rd1; mad.wide.u32 %rd3, %r4, 4, %rd2;
  ld.param.u32 %r6, [first]; add.u32 %r7, %r6, %r4; st.global.u32 [%rd3], %r7; ret;
}

// y[i] = a * x[i] + y[i], for i < n
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n) {
  .reg .pred %q; .reg .u64 %rd<7>; .reg .u32 %r<6>; .reg .f32 %f<5>;
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;
  ld.param.u32 %r5, [n]; setp.ge.u32 %q, %r4, %r5; @%q ret;
  ld.param.u64 %rd1, [x]; cvta.to.global.u64 %rd2, %rd1; mad.wide.u32 %rd3, %r4, 4, %rd2;
  ld.param.u64 %rd4, [y]; cvta.to.global.u64 %rd5, %rd4; mad.wide.u32 %rd6, %r4, 4, %rd5;
  ld.param.f32 %f1, [a]; ld.global.f32 %f2, [%rd3]; ld.global.f32 %f3, [%rd6];
  fma.rn.f32 %f4, %f1, %f2, %f3; st.global.f32 [%rd6], %f4; ret;
}

// one block: p[i] = p[n - 1 - i], through dynamic shared memory
.extern .shared .align 4 .b8 scratch[];
.visible .entry reverse(.param .u64 p) {
  .reg .u64 %rd<4>; .reg .u32 %r<9>;
  mov.u32 %r1, %tid.x; mov.u32 %r2, %ntid.x;
  ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd2, %rd1; mad.wide.u32 %rd3, %r1, 4, %rd2;
  ld.global.u32 %r3, [%rd3]; mov.u32 %r4, scratch; mad.lo.u32 %r5, %r1, 4, %r4;
  st.shared.u32 [%r5], %r3; bar.sync 0;
  sub.u32 %r6, %r2, %r1; sub.u32 %r6, %r6, 1; mad.lo.u32 %r7, %r6, 4, %r4;
  ld.shared.u32 %r8, [%r7]; st.global.u32 [%rd3], %r8; ret;
}

// parameters of every size: p[0..5] = b, h, w, d, and the two words of s
.visible .entry sizes(.param .u8 b, .param .u16 h, .param .u32 w, .param .u64 d,
                      .param .align 4 .b8 s[12], .param .f64 f, .param .u64 p) {
  .reg .u64 %rd<6>; .reg .u32 %r<4>; .reg .u16 %h<3>; .reg .f64 %fd<2>;
  ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd2, %rd1;
  ld.param.u8 %h1, [b]; cvt.u64.u16 %rd3, %h1; st.global.u64 [%rd2], %rd3;
  ld.param.u16 %h2, [h]; cvt.u64.u16 %rd3, %h2; st.global.u64 [%rd2+8], %rd3;
  ld.param.u32 %r1, [w]; cvt.u64.u32 %rd3, %r1; st.global.u64 [%rd2+16], %rd3;
  ld.param.u64 %rd3, [d]; st.global.u64 [%rd2+24], %rd3;
  ld.param.u32 %r2, [s]; cvt.u64.u32 %rd3, %r2; st.global.u64 [%rd2+32], %rd3;
  ld.param.u32 %r3, [s+8]; cvt.u64.u32 %rd3, %r3; st.global.u64 [%rd2+40], %rd3;
  ld.param.f64 %fd1, [f]; mov.b64 %rd3, %fd1; st.global.u64 [%rd2+48], %rd3; ret;
}

// p[0] = counter, p[1..4] = table, then counter += 1
.visible .entry globals(.param .u64 p) {
  .reg .u64 %rd<5>; .reg .u32 %r<2>;
  ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd2, %rd1;
  ld.global.u64 %rd3, [counter]; st.global.u64 [%rd2], %rd3;
  ld.const.u32 %r1, [table]; cvt.u64.u32 %rd4, %r1; st.global.u64 [%rd2+8], %rd4;
  ld.const.u32 %r1, [table+4]; cvt.u64.u32 %rd4, %r1; st.global.u64 [%rd2+16], %rd4;
  ld.const.u32 %r1, [table+8]; cvt.u64.u32 %rd4, %r1; st.global.u64 [%rd2+24], %rd4;
  ld.const.u32 %r1, [table+12]; cvt.u64.u32 %rd4, %r1; st.global.u64 [%rd2+32], %rd4;
  add.u64 %rd3, %rd3, 1; st.global.u64 [counter], %rd3; ret;
}

// keeps the GPU busy for so many nanoseconds
.visible .entry spin(.param .u64 ns) {
  .reg .pred %q; .reg .u64 %rd<5>;
  ld.param.u64 %rd1, [ns]; mov.u64 %rd2, %globaltimer;
again:
  mov.u64 %rd3, %globaltimer; sub.u64 %rd4, %rd3, %rd2; setp.lt.u64 %q, %rd4, %rd1; @%q bra again;
  ret;
}

// one thread a block: p[i] = i * i + 1; all blocks wait for all; q[i] = p[(i + 1) % blocks]
.visible .entry neighbours(.param .u64 p, .param .u64 q, .param .u64 arrived) {
  .reg .pred %q<2>; .reg .u64 %rd<9>; .reg .u32 %r<9>;
  ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd1, %rd1;
  ld.param.u64 %rd2, [q]; cvta.to.global.u64 %rd2, %rd2;
  ld.param.u64 %rd3, [arrived]; cvta.to.global.u64 %rd3, %rd3;
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x; mad.lo.u32 %r3, %r1, %r1, 1;
  mad.wide.u32 %rd4, %r1, 4, %rd1; st.global.u32 [%rd4], %r3;
  membar.gl; red.global.add.u32 [%rd3], 1;
again:
  ld.volatile.global.u32 %r4, [%rd3]; setp.lt.u32 %q1, %r4, %r2; @%q1 bra again;
  membar.gl; add.u32 %r5, %r1, 1; rem.u32 %r6, %r5, %r2;
  mad.wide.u32 %rd5, %r6, 4, %rd1; ld.volatile.global.u32 %r7, [%rd5];
  mad.wide.u32 %rd6, %r1, 4, %rd2; st.global.u32 [%rd6], %r7; ret;
}

// p[0] = sum of k * k for k < n, in registers alone: the time is the GPU's
.visible .entry compute(.param .u64 p, .param .u32 n) {
  .reg .pred %q; .reg .u64 %rd<3>; .reg .u32 %r<4>;
  ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd2, %rd1; ld.param.u32 %r1, [n];
  mov.u32 %r2, 0; mov.u32 %r3, 0;
again:
  mad.lo.u32 %r3, %r2, %r2, %r3; add.u32 %r2, %r2, 1; setp.lt.u32 %q, %r2, %r1; @%q bra again;
  st.global.u32 [%rd2], %r3; ret;
}

// writes where nothing is
.visible .entry fault() {
  .reg .u64 %rd<2>; .reg .u32 %r<2>;
  mov.u64 %rd1, 16; mov.u32 %r1, 1; st.global.u32 [%rd1], %r1; ret;
}
"""
)

#: ``callee`` and ``caller`` are linked with each other: neither is a program alone.
CALLEE = (
    _HEAD.format(version="7.0", target="sm_75")
    + r"""
.visible .func (.param .u32 result) triple(.param .u32 v) {
  .reg .u32 %r<3>;
  ld.param.u32 %r1, [v]; mul.lo.u32 %r2, %r1, 3; st.param.u32 [result], %r2; ret;
}
"""
)
CALLER = (
    _HEAD.format(version="7.0", target="sm_75")
    + r"""
.extern .func (.param .u32 result) triple(.param .u32 v);
.visible .entry tripled(.param .u64 p, .param .u32 v) {
  .reg .u64 %rd<3>; .reg .u32 %r<3>;
  ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd2, %rd1; ld.param.u32 %r1, [v];
  { .param .u32 a; .param .u32 b; st.param.u32 [a], %r1;
    call.uni (b), triple, (a); ld.param.u32 %r2, [b]; }
  st.global.u32 [%rd2], %r2; ret;
}
"""
)

#: Sets a conditional node's value: as long as ``p[0]`` (counted up here) is below ``n``.
CONDITION = (
    _HEAD.format(version="8.3", target="sm_75")
    + r"""
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry count(.param .u64 handle, .param .u64 p, .param .u32 n) {
  .reg .pred %q; .reg .u64 %rd<4>; .reg .u32 %r<5>;
  ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd2, %rd1; ld.param.u64 %rd3, [handle];
  ld.global.u32 %r1, [%rd2]; add.u32 %r1, %r1, 1; st.global.u32 [%rd2], %r1;
  ld.param.u32 %r2, [n]; setp.lt.u32 %q, %r1, %r2; selp.u32 %r3, 1, 0, %q;
  { .param .b64 a; .param .b32 b; st.param.b64 [a], %rd3; st.param.b32 [b], %r3;
    call.uni cudaGraphSetConditional, (a, b); }
  ret;
}
"""
)

HOPPER = (
    _HEAD.format(version="8.0", target="sm_90")
    + r"""
// p[block] = rank in the cluster | its size << 8 | the cluster's number << 16;
// q[block] = what the next block of the cluster had put into its own shared memory
.visible .entry cluster(.param .u64 p, .param .u64 q) {
  .reg .u64 %rd<6>; .reg .u32 %r<14>; .shared .align 4 .u32 mine;
  ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd1, %rd1;
  ld.param.u64 %rd2, [q]; cvta.to.global.u64 %rd2, %rd2;
  mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, %cluster_nctarank; mov.u32 %r3, %clusterid.x;
  mov.u32 %r4, %ctaid.x;
  shl.b32 %r5, %r2, 8; shl.b32 %r6, %r3, 16; or.b32 %r7, %r1, %r5; or.b32 %r7, %r7, %r6;
  mad.wide.u32 %rd3, %r4, 4, %rd1; st.global.u32 [%rd3], %r7;
  mad.lo.u32 %r8, %r4, 10, 7; st.shared.u32 [mine], %r8;
  barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
  add.u32 %r9, %r1, 1; rem.u32 %r10, %r9, %r2; mov.u32 %r11, mine;
  mapa.shared::cluster.u32 %r12, %r11, %r10; ld.shared::cluster.u32 %r13, [%r12];
  mad.wide.u32 %rd4, %r4, 4, %rd2; st.global.u32 [%rd4], %r13;
  barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; ret;
}

// one thread: the tile of 8 x 4 words at (x, y) of the map's tensor goes to p[0..31]
.visible .entry tile(.param .align 64 .b8 map[128], .param .u64 p, .param .u32 x, .param .u32 y) {
  .reg .pred %q; .reg .u64 %rd<6>; .reg .u32 %r<9>;
  .shared .align 128 .b8 box[128]; .shared .align 8 .b64 ready;
  mov.b64 %rd1, map; cvta.param.u64 %rd2, %rd1;
  ld.param.u64 %rd3, [p]; cvta.to.global.u64 %rd3, %rd3;
  ld.param.u32 %r1, [x]; ld.param.u32 %r2, [y];
  mov.u32 %r3, box; mov.u32 %r4, ready;
  mbarrier.init.shared.b64 [%r4], 1; fence.proxy.async;
  mbarrier.arrive.expect_tx.shared.b64 %rd4, [%r4], 128;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
    [%r3], [%rd2, {%r1, %r2}], [%r4];
again:
  mbarrier.try_wait.parity.shared.b64 %q, [%r4], 0; @!%q bra again;
  mov.u32 %r5, 0;
copy:
  add.u32 %r6, %r3, %r5; ld.shared.u32 %r7, [%r6];
  cvt.u64.u32 %rd5, %r5; add.u64 %rd5, %rd5, %rd3; st.global.u32 [%rd5], %r7;
  add.u32 %r5, %r5, 4; setp.lt.u32 %q, %r5, 128; @%q bra copy;
  ret;
}
"""
)

TEXTURES = (
    _HEAD.format(version="7.0", target="sm_75")
    + r"""
// p[i] = the texture at (i + 0.5) * step, in texels
.visible .entry sample(.param .u64 texture, .param .u64 p, .param .f32 step) {
  .reg .u64 %rd<4>; .reg .u32 %r<2>; .reg .f32 %f<9>;
  ld.param.u64 %rd1, [texture]; ld.param.u64 %rd2, [p]; cvta.to.global.u64 %rd2, %rd2;
  mov.u32 %r1, %tid.x; cvt.rn.f32.u32 %f1, %r1; add.f32 %f1, %f1, 0f3F000000;
  ld.param.f32 %f2, [step]; mul.f32 %f3, %f1, %f2;
  tex.1d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%rd1, {%f3}];
  mad.wide.u32 %rd3, %r1, 4, %rd2; st.global.f32 [%rd3], %f4; ret;
}

// the surface's words (x, y) = 100 * y + x
.visible .entry paint(.param .u64 surface) {
  .reg .u64 %rd<2>; .reg .u32 %r<6>;
  ld.param.u64 %rd1, [surface]; mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y;
  mad.lo.u32 %r3, %r2, 100, %r1; shl.b32 %r4, %r1, 2;
  sust.b.2d.b32.trap [%rd1, {%r4, %r2}], {%r3}; ret;
}

// the same by a texture reference of the module: p[i] = reference(i)
.global .texref reference;
.visible .entry referred(.param .u64 p) {
  .reg .u64 %rd<3>; .reg .u32 %r<3>; .reg .f32 %f<5>; .reg .s32 %s;
  ld.param.u64 %rd1, [p]; cvta.to.global.u64 %rd1, %rd1; mov.u32 %r1, %tid.x; mov.b32 %s, %r1;
  tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [reference, {%s}];
  mad.wide.u32 %rd2, %r1, 4, %rd1; st.global.f32 [%rd2], %f1; ret;
}
"""
)
