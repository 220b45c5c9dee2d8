module {
  func.func @main(%x: tensor<1x8x8x3xf32>, %i: tensor<i32>) -> tensor<*xf32> {
    %k = stablehlo.constant dense<"0x0000803F0000"> : tensor<3x3x3x4xf32>
    %0 = stablehlo.convolution(%x, %k) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
      window = {stride = [2, 2], pad = [[1, 0], [1, 0]], rhs_dilate = [1, 1]}
      {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
      : (tensor<1x8x8x3xf32>, tensor<3x3x3x4xf32>) -> tensor<1x4x4x4xf32>
    %c = stablehlo.constant dense<[1, -2]> : tensor<2xi64>
    %1:2 = stablehlo.while(%a = %i, %b = %0) : tensor<i32>, tensor<1x4x4x4xf32>
    cond {
      %t = stablehlo.compare LT, %a, %a : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %t : tensor<i1>
    } do {
      stablehlo.return %a, %b : tensor<i32>, tensor<1x4x4x4xf32>
    }
    %2 = stablehlo.slice %1#1 [0:1, 0:4:2, 0:4, 1:3] : (tensor<1x4x4x4xf32>) -> tensor<1x2x4x2xf32>
    %3 = stablehlo.pad %2, %i, low = [0, 0, -1, 0], high = [0, 0, 0, 0], interior = [0, 1, 0, 0] : x
    return %3 : tensor<*xf32>
  }
}
