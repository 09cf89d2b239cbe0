"""Texts of optimised programs, shortened."""

STEP = """HloModule jit_step, is_scheduled=true

%widen (given: bf16[256,128]) -> f32[256,128] {
  %given = bf16[256,128]{1,0} parameter(0)
  ROOT %wide = f32[256,128]{1,0} convert(%given)
}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

ENTRY %main (x: bf16[256,512], w: bf16[512,128]) -> f32[256,128] {
  %x = bf16[256,512]{1,0} parameter(0)
  %w = bf16[512,128]{1,0} parameter(1)
  %product = (bf16[256,128]{1,0}, s8[4096]{0}) custom-call(%x, %w), custom_call_target="__cublas$lt$matmul", \
backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}
  %y = bf16[256,128]{1,0} get-tuple-element(%product), index=0
  %fused = f32[256,128]{1,0} fusion(%y), kind=kLoop, calls=%widen
  %begun = f32[256,128]{1,0} all-reduce-start(%fused), replica_groups={{0,1}}, to_apply=%add
  ROOT %ended = f32[256,128]{1,0} all-reduce-done(%begun)
}
"""

LOOP = """HloModule jit_loop

%body (carry: (s32[], f32[1000])) -> (s32[], f32[1000]) {
  %carry = (s32[], f32[1000]{0}) parameter(0)
  %i = s32[] get-tuple-element(%carry), index=0
  %x = f32[1000]{0} get-tuple-element(%carry), index=1
  %added = f32[1000]{0} add(%x, %x)
  ROOT %next = (s32[], f32[1000]{0}) tuple(%i, %added)
}

%unfinished (carry.1: (s32[], f32[1000])) -> pred[] {
  %carry.1 = (s32[], f32[1000]{0}) parameter(0)
  ROOT %yes = pred[] constant(true)
}

ENTRY %main (given: f32[1000]) -> f32[1000] {
  %given = f32[1000]{0} parameter(0)
  %zero = s32[] constant(0)
  %first = f32[1000]{0} negate(%given)
  %start = (s32[], f32[1000]{0}) tuple(%zero, %first)
  %loop = (s32[], f32[1000]{0}) while(%start), condition=%unfinished, body=%body, \
backend_config={"known_trip_count":{"n":"7"}}
  ROOT %result = f32[1000]{0} get-tuple-element(%loop), index=1
}
"""

DIVIDED = """HloModule jit_divided

%begin (shard: f32[2,8]) -> f32[8,8] {
  %shard = f32[2,8]{1,0} parameter(0)
  ROOT %all.1 = f32[8,8]{1,0} all-gather(%shard), channel_id=5, replica_groups={{0,1,2,3}}, dimensions={0}, \
frontend_attributes={chain_id="2"}
}

%goOn (shard.2: f32[2,8]) -> f32[8,8] {
  %shard.2 = f32[2,8]{1,0} parameter(0)
  ROOT %all.2 = f32[8,8]{1,0} all-gather(%shard.2), channel_id=5, replica_groups={{0,1,2,3}}, dimensions={0}, \
frontend_attributes={chain_id="2"}
}

%body (carry: (s32[], f32[2,8])) -> (s32[], f32[2,8]) {
  %carry = (s32[], f32[2,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%carry), index=0
  %x = f32[2,8]{1,0} get-tuple-element(%carry), index=1
  %started = f32[8,8]{1,0} fusion(%x), kind=kCustom, calls=%begin
  %ended = f32[8,8]{1,0} fusion(%x), kind=kCustom, calls=%goOn
  ROOT %next = (s32[], f32[2,8]{1,0}) tuple(%i, %x)
}

%unfinished (carry.1: (s32[], f32[2,8])) -> pred[] {
  %carry.1 = (s32[], f32[2,8]{1,0}) parameter(0)
  ROOT %yes = pred[] constant(true)
}

ENTRY %main (given: f32[2,8], grads: f32[32]) -> f32[16] {
  %given = f32[2,8]{1,0} parameter(0)
  %grads = f32[32]{0} parameter(1)
  %zero = s32[] constant(0)
  %start = (s32[], f32[2,8]{1,0}) tuple(%zero, %given)
  %loop = (s32[], f32[2,8]{1,0}) while(%start), condition=%unfinished, body=%body, \
backend_config={"known_trip_count":{"n":"3"}}
  ROOT %scattered = f32[16]{0} reduce-scatter(%grads), channel_id=6, replica_groups=[2,2]<=[4], dimensions={0}
}
"""
