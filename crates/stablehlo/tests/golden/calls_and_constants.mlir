module @calls_and_constants {
  func.func public @main(%x: tensor<2x2xf32>) -> (tensor<2x2xf32> {jax.result_info = "y"}, tensor<i32> {jax.result_info = "status"}) {
    %0 = func.call @scaled(%x) : (tensor<2x2xf32>) -> tensor<2x2xf32>
    %1 = stablehlo.constant dense<"0x000102030405060708090A0B0C0D0E0F101112131415161718191A1B1C1D1E1F202122232425262728292A2B2C2D2E2F303132333435363738393A3B3C3D3E3F404142434445464748494A4B4C4D4E4F"> : tensor<80xui8>
    %2:2 = stablehlo.custom_call @tpu_custom_call(%0, %1) {api_version = 2 : i32, backend_config = "{\"body\": \"\C3\A9\\n\"}", has_side_effect = true, operand_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[0]> : tensor<1xindex>], result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>], output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>]} : (tensor<2x2xf32>, tensor<80xui8>) -> (tensor<2x2xf32>, tensor<i32>)
    return %2#0, %2#1 : tensor<2x2xf32>, tensor<i32>
  }
  func.func private @scaled(%x: tensor<2x2xf32>) -> (tensor<2x2xf32> {jax.result_info = "y"}) {
    %0 = stablehlo.constant dense<[[1.0, 0x3DCCCCCD], [-0.0, 0x7FC00000]]> : tensor<2x2xf32>
    %1 = stablehlo.multiply %x, %0 : tensor<2x2xf32>
    return %1 : tensor<2x2xf32>
  }
}
