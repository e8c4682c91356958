"""scripts/check_includes.py finds each kind of violation, and nothing in what is allowed."""
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "scripts"))
import check_includes  # noqa: E402

CLEAN = {
    "tensor/tensor.h": "#pragma once\n#include <vector>\n",
    "tensor/cpu/cpu_ops.h": '#pragma once\n#include "tensor/tensor.h"\n',
    "tensor/cpu/gemm.cpp": '#include "tensor/cpu/cpu_ops.h"\n#ifdef OPENBLAS_VERSION\n#endif\n',
    "tensor/cuda/add.cu": '#include "tensor/tensor.h"\n#ifdef __CUDA_ARCH__\n#endif\n',
    "parallel/mesh.h": '#pragma once\n#include <mpi.h>\n#include "tensor/tensor.h"\n',
    "model/block.h": '#pragma once\n#include "parallel/mesh.h"\n',
    "data/tokens.h": '#pragma once\n#include "tensor/tensor.h"\n',
    "checkpoint/shard.h": '#pragma once\n#include "parallel/mesh.h"\n',
    "trainer/main.cpp": '#include "model/block.h"\n#include "data/tokens.h"\nauto x = std::getenv("HOME");\n',
    "tests/tensor/gemm_test.cpp": '#include "tensor/cpu/cpu_ops.h"\n',
}


def problems_with(extra):
    with tempfile.TemporaryDirectory() as root:
        for path, text in {**CLEAN, **extra}.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
        return check_includes.check(root)


class CheckIncludes(unittest.TestCase):
    def expect_problem(self, path, text, words):
        problems = problems_with({path: text})
        self.assertEqual(len(problems), 1, problems)
        self.assertTrue(problems[0].startswith(path + ":"), problems)
        self.assertIn(words, problems[0])

    def test_accepts_what_the_design_allows(self):
        self.assertEqual(problems_with({}), [])

    def test_refuses_arrows_that_point_up(self):
        self.expect_problem("tensor/a.cpp", '#include "parallel/mesh.h"\n', "tensor/ must not use parallel/")
        self.expect_problem("parallel/a.cpp", '#include "model/block.h"\n', "parallel/ must not use model/")
        self.expect_problem("model/a.cpp", '#  include "trainer/main.cpp"\n', "model/ must not use trainer/")

    def test_refuses_arrows_between_neighbours(self):
        self.expect_problem("model/a.cpp", '#include "data/tokens.h"\n', "model/ must not use data/")
        self.expect_problem("data/a.cpp", '#include "checkpoint/shard.h"\n', "data/ must not use checkpoint/")
        self.expect_problem("checkpoint/a.cpp", '#include "model/block.h"\n', "checkpoint/ must not use model/")
        self.expect_problem("data/a.cpp", '#include "parallel/mesh.h"\n', "data/ must not use parallel/")

    def test_refuses_the_inside_of_a_backend(self):
        self.expect_problem("model/a.cpp", '#include "tensor/cpu/cpu_ops.h"\n', "private to the backend")
        self.expect_problem("tensor/a.cpp", '#include "tensor/cpu/cpu_ops.h"\n', "private to the backend")
        self.expect_problem("tensor/paper/a.cpp", '#include "tensor/cpu/cpu_ops.h"\n', "private to the backend")
        self.expect_problem("tensor/cuda/a.cu", '#include "tensor/cpu/cpu_ops.h"\n', "private to the backend")

    def test_refuses_includes_that_are_not_from_the_root(self):
        self.expect_problem("parallel/a.cpp", '#include "mesh.h"\n', "no file from the repository root")
        self.expect_problem("parallel/a.cpp", '#include "parallel/../data/tokens.h"\n', "no file from the repository root")
        self.expect_problem("parallel/a.cpp", "#include <tensor/tensor.h>\n", "with quotes")

    def test_refuses_conditions_on_a_backend_in_shared_code(self):
        self.expect_problem("tensor/a.cpp", "#ifdef TRAINER_CUDA\n#endif\n", "condition on a backend")
        self.expect_problem("model/a.cpp", "#if defined(USE_NCCL)\n#endif\n", "condition on a backend")

    def test_refuses_the_environment_below_main(self):
        self.expect_problem("trainer/a.cpp", 'auto x = std::getenv("HOME");\n', "environment variables")
        self.expect_problem("parallel/a.cpp", "extern char** environ;\n", "environment variables")

    def test_refuses_headers_without_pragma_once(self):
        self.expect_problem("model/a.h", "struct A {};\n", "#pragma once")


if __name__ == "__main__":
    unittest.main()
