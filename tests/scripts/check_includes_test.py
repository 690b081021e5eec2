"""Plants violations in a scratch tree and expects scripts/check_includes.py to see each of them."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "check_includes.py"


class CheckIncludesTest(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.addCleanup(self.scratch.cleanup)
        self.root = pathlib.Path(self.scratch.name)
        self.plant("trace/model.h", "#include <vector>")

    def plant(self, path, *lines):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(line + "\n" for line in lines))

    def run_script(self, root=None):
        return subprocess.run([sys.executable, SCRIPT, root or self.root], capture_output=True,
                              text=True, check=False)

    def expect_clean(self):
        result = self.run_script()
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def expect(self, *expected):
        result = self.run_script()
        self.assertEqual(result.returncode, 1)
        lines = result.stdout.splitlines()
        self.assertEqual(len(lines), len(expected), result.stdout)
        for line, part in zip(lines, expected):
            self.assertIn(part, line)

    def test_repository_is_clean(self):
        result = self.run_script(ROOT)
        self.assertEqual((result.returncode, result.stdout), (0, ""))

    def test_accepts_what_the_table_allows(self):
        self.plant("trace/digest.cc", '#include "trace/model.h"', "#include <fmt/format.h>",
                   "#include <xxhash.h>", '#include "steptape/refusal.h"')
        self.plant("live/tensors.cc", '#include "trace/model.h"', "#include <ATen/core/Tensor.h>")
        self.plant("storage/trace/writer.cc", "#include <zstd.h>", "#include <google/protobuf/arena.h>")
        self.plant("tools/torch/replay.cc", '#include "steptape/player.h"')
        self.plant("tests/trace/odd_test.cc", '#include "recorder/recorder.h"')
        self.expect_clean()

    def test_replayer_must_not_include_recorder(self):
        self.plant("replayer/plan.cc", "", '#include "recorder/recorder.h"')
        self.expect("replayer/plan.cc:2: replayer may not include recorder")

    def test_recorder_must_not_include_replayer(self):
        self.plant("recorder/stream.h", '#include "replayer/planner/program.h"')
        self.expect("recorder/stream.h:1: recorder may not include replayer")

    def test_trace_must_not_include_torch(self):
        self.plant("trace/model.cc", "#include <torch/torch.h>", "  #  include <c10/util/Half.h>")
        self.expect("trace/model.cc:1: trace may not include torch", "trace/model.cc:2: ")

    def test_offline_tools_must_not_include_torch(self):
        self.plant("tools/dump/info.cc", "#include <ATen/ATen.h>")
        self.expect("tools may not include torch")

    def test_protobuf_stays_out_of_headers_that_others_see(self):
        self.plant("session/save.cc", '#include "storage/trace/reader.h"')
        self.plant("storage/trace/reader.h", '#include "storage/trace/block.h"')
        self.plant("storage/trace/block.h", "#include <google/protobuf/message.h>",
                   '#include "trace.pb.h"')
        self.plant("storage/trace/messages.h", '#include "trace.pb.h"')
        self.expect("storage/trace/block.h:1: other parts see this header: storage may not show them "
                    "protobuf", "storage/trace/block.h:2: ")

    def test_protobuf_stays_in_storage(self):
        self.plant("live/values.cc", "#include <google/protobuf/message.h>")
        self.expect("live may not include protobuf")

    def test_public_headers_show_std_and_aten_core_alone(self):
        self.plant("include/steptape/session.h", '#include "trace/model.h"',
                   "#include <torch/nn/module.h>", "#include <ATen/core/Tensor.h>",
                   "#include <fmt/format.h>", '#include "steptape/error.h"')
        self.expect("session.h:1: include/steptape may not include trace", "session.h:2: ",
                    "session.h:4: ")

    def test_only_value_headers_are_for_every_part(self):
        self.plant("trace/text.cc", '#include "steptape/session.h"')
        self.expect("trace may include of include/steptape only")

    def test_examples_see_the_public_surface_alone(self):
        self.plant("examples/digits/train.cc", '#include "steptape/steptape.h"',
                   '#include "session/session.h"')
        self.expect("train.cc:2: examples may not include session")

    def test_relative_includes_do_not_escape_the_table(self):
        self.plant("recorder/recorder.h")
        self.plant("guards/check.cc", '#include "../recorder/recorder.h"')
        self.expect("guards may not include recorder")

    def test_new_folders_need_a_row(self):
        self.plant("helpers/strings.h")
        self.expect("helpers/ has no row in the table")

    def test_unknown_libraries_are_named(self):
        self.plant("trace/model.cc", "#include <boost/any.hpp>")
        self.expect("trace may not include the unknown library of <boost/any.hpp>")

    def test_links_are_one_way(self):
        self.plant("trace/CMakeLists.txt", "steptape_part(trace", "  PUBLIC steptape::storage)")
        self.plant("guards/CMakeLists.txt", "steptape_part(guards TORCH",
                   "  PRIVATE steptape_recorder  # why not", ")")
        self.expect("guards/CMakeLists.txt:2: guards may not link recorder",
                    "trace/CMakeLists.txt:2: trace may not link storage")

    def test_offline_parts_link_no_torch(self):
        self.plant("storage/CMakeLists.txt", "steptape_part(storage TORCH", ")")
        self.plant("tools/CMakeLists.txt", "target_link_libraries(steptape steptape_libtorch)")
        self.expect("storage may not link torch", "tools may not link torch")

    def test_an_empty_tree_is_no_success(self):
        with tempfile.TemporaryDirectory() as empty:
            self.assertEqual(self.run_script(empty).returncode, 2)


if __name__ == "__main__":
    unittest.main()
