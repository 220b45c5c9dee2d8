module @m attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(
      %arg0: tensor<2x3xf32> {mhlo.sharding = "{replicated}"}, %arg1: tensor<4xi32>)
      -> (tensor<2xf32> {jax.result_info = "[0]"}, tensor<4xi32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32> loc(#loc1)
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [1]
      : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>
    %1 = call @helper(%0) : (tensor<2xf32>) -> tensor<2xf32>
    %2 = "stablehlo.sort"(%arg1) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %c = stablehlo.compare LT, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }) : (tensor<4xi32>) -> tensor<4xi32>
    return %1, %2 : tensor<2xf32>, tensor<4xi32>
  }
  func.func private @helper(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    %0 = chlo.asinh %arg0 : tensor<2xf32> -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }
}
#loc1 = loc("f.py":1:2)
