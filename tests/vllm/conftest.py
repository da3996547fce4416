"""These tests need vLLM: `.ci/vllm` runs them in an environment of its own.

vLLM is imported before warnings are errors: torch and vLLM have some of their own.
"""

import os
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try:
        import vllm.v1.core.kv_cache_manager  # noqa: F401
    except ImportError:
        if os.environ.get("PERC_EXPECT_VLLM"):
            raise
        collect_ignore_glob = ["test_*.py"]
