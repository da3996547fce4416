"""jax-triton 0.4 beside the versions of JAX and Triton that it does not expect.

Nothing else in perc touches private names of either. Each repair applies only where
its cause is found, so that it falls away once upstream is repaired.
"""

import contextlib
import functools
import inspect
import warnings
from collections.abc import Iterator
from typing import Any

TMA_TF32 = 11  # its value since Triton 3.7


@functools.cache
def jax_triton() -> Any:
    """The module jax_triton, repaired.

    Raises:
        ImportError: if jax-triton or Triton is missing, with what to install.
    """
    try:
        import triton.backends.nvidia.driver as driver  # pyright: ignore

        if not hasattr(driver, "TMA_TF32"):
            # Triton 3.6: without the name, jax_triton 0.4 takes a stub for its CUDA
            # back end and fails much later, when it lowers.
            driver.TMA_TF32 = TMA_TF32
        import jax_triton as module  # pyright: ignore
    except ImportError as error:
        raise ImportError(
            f"backend='triton' needs jax-triton 0.4 and Triton ({error}): on Python "
            "3.12 or above, pip install jax-triton==0.4.1; or take backend='jnp'."
        ) from error
    _repair_dead_code_rule()
    return module


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences the one deprecation that the kernels knowingly meet.

    jax-triton would have in-place buffers passed as `jax.new_ref`; perc's wrappers are
    functions of arrays, and an alias lowers to the same custom call.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*input_output_aliases.*")
        yield


def _repair_dead_code_rule() -> None:
    """JAX 0.12 passes a dead-code rule one argument more than jax-triton takes."""
    from jax._src.interpreters import partial_eval
    from jax_triton import triton_lib  # pyright: ignore

    def rule(used: list[bool], *rest: Any) -> tuple[list[bool], Any]:
        equation = rest[-1]
        return [True] * len(equation.invars), equation

    primitive = triton_lib.triton_kernel_call_p
    registered = partial_eval.dce_rules[primitive]
    expected = partial_eval._default_dce_rule  # type: ignore[attr-defined]
    arity = len(inspect.signature(expected).parameters)
    if len(inspect.signature(registered).parameters) != arity:
        partial_eval.dce_rules[primitive] = rule
