# SPDX-License-Identifier: Apache-2.0
"""Names of the functions and methods of PyTorch that `null_follow` replaces."""

NEW = """
arange as_tensor eye full linspace ones scalar_tensor tensor tril_indices triu_indices zeros
"""
LIKE = "full_like new_full new_ones new_tensor new_zeros ones_like zeros_like"
"""Their first argument gives only a shape, a type and a device."""
UNWRITTEN = "empty empty_like new_empty"
"""A program that works reads nothing from them that it has not written. They count as zeros."""
CONVERTED = """
bool byte clone contiguous cpu cuda double float half bfloat16 int long short to type type_as
"""
COMPUTED = """
abs absolute add addcmul all allclose amax amin aminmax any argmax argmin argsort argwhere bincount
bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor bucketize cat
ceil clamp clamp_max clamp_min clip column_stack concat concatenate count_nonzero cummax cummin
cumprod cumsum diag diagflat diff div divide dstack eq equal exp fill flatten flip float_power floor
floor_divide fmod gather ge greater greater_equal gt hstack index_add index_copy index_fill
index_put index_select is_nonzero isclose isin item kthvalue le lerp less less_equal log log2
logical_and logical_not logical_or logical_xor lt masked_fill masked_scatter masked_select max
maximum mean median min minimum mode mul multiply nan_to_num ne neg negative nonzero not_equal numpy
one_hot outer pad pad_sequence pow prod remainder repeat repeat_interleave reshape roll round
scatter scatter_add scatter_reduce searchsorted sigmoid sign softmax sort sqrt square stack std sub
subtract sum take_along_dim tile tolist topk tril triu true_divide trunc unique_consecutive
unique_dim var vstack where _unique2
__add__ __and__ __bool__ __contains__ __eq__ __float__ __floordiv__ __ge__ __gt__ __index__ __int__
__invert__ __le__ __lshift__ __lt__ __mod__ __mul__ __ne__ __neg__ __or__ __pow__ __radd__ __rand__
__rfloordiv__ __rmod__ __rmul__ __ror__ __rpow__ __rshift__ __rsub__ __rtruediv__ __rxor__ __sub__
__truediv__ __xor__
"""
ASSUMED = "isfinite isinf isnan"
"""Computed values are finite, as those of a program that works."""
GROUPED = "matrix_exp linalg_matrix_exp"
"""They group matrices by their norms."""
IN_PLACE = """
abs_ add_ bitwise_and_ bitwise_or_ bitwise_xor_ ceil_ clamp_ clamp_max_ clamp_min_ copy_ cumsum_
div_ eq_ fill_ floor_ floor_divide_ ge_ gt_ index_add_ index_copy_ index_fill_ index_put_
index_reduce_ le_ logical_and_ logical_not_ logical_or_ lt_ masked_fill_ masked_scatter_ mul_ ne_
neg_ pow_ put_ remainder_ round_ scatter_ scatter_add_ scatter_reduce_ sqrt_ sub_ tril_ triu_ zero_
__iadd__ __iand__ __ifloordiv__ __imod__ __imul__ __ior__ __ipow__ __isub__ __itruediv__ __ixor__
__setitem__
"""
OVERWRITING = ("copy_", "fill_", "zero_")
"""In place; the former values do not matter."""
REPEATABLE = (*OVERWRITING, "__setitem__", "index_fill_", "masked_fill_")
"""In place; a second call does not change the result."""
DRAWN = "rand randint randn randperm"
DRAWN_FROM = "bernoulli multinomial"
"""Their first argument has probabilities."""
DRAWN_LIKE = "rand_like randint_like randn_like"
DRAWN_IN_PLACE = "bernoulli_ normal_ random_ uniform_"
READ = """
allclose equal is_nonzero item numpy tolist __bool__ __contains__ __float__ __index__ __int__
"""
"""They return something else than tensors."""
COUNTED = ("nonzero", "argwhere", "where", "_unique2", "unique_consecutive", "unique_dim")
"""They read how many elements their result has."""
SIZED = """
arange empty eye full ones rand randint randn randperm zeros
"""
"""A program may give a number as a tensor on the GPU."""
SIZED_FROM = """
adaptive_avg_pool1d broadcast_to chunk diagonal expand kthvalue multinomial narrow new_empty
new_full new_ones new_zeros repeat reshape roll select split_with_sizes tile topk tril triu
unflatten unfold unsafe_split view
"""
"""The same is true of these, except for their first argument."""
