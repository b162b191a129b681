module @paged_step {
  func.func public @main(%latents: tensor<16x4x8xbf16> {tf.aliasing_output = 1 : i32}, %token: tensor<2x8xbf16>, %place: tensor<2x2xi32>, %table: tensor<2x3xi32>) -> (tensor<2x12xf32> {jax.result_info = "scores"}, tensor<16x4x8xbf16> {jax.result_info = "latents"}) {
    // mla/write
    %2 = "stablehlo.scatter"(%latents, %place, %token) <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0, 1], input_batching_dims = [], scatter_indices_batching_dims = [], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = false}> ({
    ^bb0(%0: tensor<bf16>, %1: tensor<bf16>):
      stablehlo.return %1 : tensor<bf16>
    }) : (tensor<16x4x8xbf16>, tensor<2x2xi32>, tensor<2x8xbf16>) -> tensor<16x4x8xbf16> loc(#loc0)
    // mla/attend
    %3 = "stablehlo.gather"(%2, %table) <{dimension_numbers = #stablehlo.gather<offset_dims = [2, 3], collapsed_slice_dims = [0], operand_batching_dims = [], start_indices_batching_dims = [], start_index_map = [0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 4, 8>}> : (tensor<16x4x8xbf16>, tensor<2x3xi32>) -> tensor<2x3x4x8xbf16> loc(#loc1)
    %4 = stablehlo.reshape %3 : (tensor<2x3x4x8xbf16>) -> tensor<2x12x8xbf16> loc(#loc1)
    %5 = stablehlo.dot_general %token, %4, batching_dims = [0] x [0], contracting_dims = [1] x [2], precision = [DEFAULT, DEFAULT] : (tensor<2x8xbf16>, tensor<2x12x8xbf16>) -> tensor<2x12xf32> loc(#loc1)
    %6 = stablehlo.constant dense<0xFF800000> : tensor<f32> loc(#loc1)
    %7 = stablehlo.reduce(%5 init: %6) applies stablehlo.maximum across dimensions = [1] : (tensor<2x12xf32>, tensor<f32>) -> tensor<2xf32> loc(#loc1)
    %8 = stablehlo.broadcast_in_dim %7, dims = [0] : (tensor<2xf32>) -> tensor<2x12xf32> loc(#loc1)
    %9 = stablehlo.subtract %5, %8 : tensor<2x12xf32> loc(#loc1)
    %10 = stablehlo.exponential %9 : tensor<2x12xf32> loc(#loc1)
    %11 = stablehlo.constant dense<0> : tensor<i32> loc(#loc1)
    %21:2 = stablehlo.while(%12 = %11, %13 = %10) : tensor<i32>, tensor<2x12xf32> cond {
      %14 = stablehlo.constant dense<3> : tensor<i32> loc(#loc1)
      %15 = stablehlo.compare LT, %12, %14, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1> loc(#loc1)
      stablehlo.return %15 : tensor<i1>
    } do {
      %16 = stablehlo.constant dense<1> : tensor<i32> loc(#loc1)
      %17 = stablehlo.add %12, %16 : tensor<i32> loc(#loc1)
      %18 = stablehlo.constant dense<0.5> : tensor<2x12xf32> loc(#loc1)
      %19 = stablehlo.multiply %13, %18 : tensor<2x12xf32> loc(#loc1)
      %20 = stablehlo.add %19, %10 : tensor<2x12xf32> loc(#loc1)
      stablehlo.return %17, %20 : tensor<i32>, tensor<2x12xf32>
    } loc(#loc1)
    return %21#1, %2 : tensor<2x12xf32>, tensor<16x4x8xbf16>
  }
}
#loc0 = loc("mla/write")
#loc1 = loc("mla/attend")
