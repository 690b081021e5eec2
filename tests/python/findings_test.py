"""Programs of findings/, each of which a version of Steptape replayed wrongly or refused without need: its calls give eager's bits, and it
replays or is refused as is said here.

Each file has `play(wrap)`, or `play(wrap, case)` and CASES by name: makes the program anew, wraps its step by `wrap`, and returns what its
calls gave and the step. A line that is refused ends with "# refused: CODE".
"""
import importlib.util
import pathlib
import sys

import pytest
import torch

import steptape

FOLDER = pathlib.Path(__file__).with_name("findings")
REPLAYS = "replays"
OUTCOMES = {
    "effect_01_counters_that_are_not_counted": REPLAYS,
    "num_01_ints_beyond_2_53": REPLAYS,
    "num_02_ppo_clip_range": REPLAYS,
    "num_03_huber_delta": REPLAYS,
    "num_04_group_phase_indexes_a_table": REPLAYS,
    "num_05_percent_format_of_a_rate": REPLAYS,
    "num_06_long_strings_compare_by_80_characters": "host_effect",
    "reach_01_attribute_that_comes_later": REPLAYS,
    "reach_02_global_that_comes_later": REPLAYS,
    "reach_03_method_replaced_on_the_instance": REPLAYS,
    "reach_04_seen_first_too_deep": REPLAYS,
    "reach_05_objects_in_containers_of_a_class": REPLAYS,
    "reach_06_module_as_class_attribute": REPLAYS,
    "reach_07_optimizer_as_class_or_function_attribute": REPLAYS,
    "reach_08_object_as_function_attribute": REPLAYS,
    "reach_09_partial_with_positional_container": REPLAYS,
    "reach_10_step_of_a_dict_or_list_subclass": REPLAYS,
    "reach_11_getattr_by_a_built_name": REPLAYS,
    "reach_12_method_by_a_built_name": REPLAYS,
    "reach_13_match_statement": REPLAYS,
    "reach_14_attrgetter_and_reduce": REPLAYS,
    "reach_15_globals_by_name": REPLAYS,
    "reach_16_iterators": "host_effect",
    "reach_17_dict_views": REPLAYS,
    "reach_18_keys_that_are_objects": REPLAYS,
    "reach_19_constructors_by_type_self": REPLAYS,
    "reach_20_slots_of_a_base_class": REPLAYS,
    "reach_21_code_behind_a_package_wrapper": REPLAYS,
    "reach_22_random_generator_of_a_class": "host_random",
    "reach_23_module_attribute_named_hooks": REPLAYS,
    "reach_24_four_objects_below_a_module": REPLAYS,
    "read_01_hoisted_read_is_skipped": REPLAYS,
    "read_02_hoisted_branch_on_tensor_flag": REPLAYS,
    "read_03_hoisted_init_flag_buffer": REPLAYS,
    "read_04_hoisted_temperature_buffer": REPLAYS,
    "read_05_backward_keeps_the_old_number": REPLAYS,
    "read_06_backward_add_alpha": REPLAYS,
    "read_06_backward_clamp": REPLAYS,
    "read_06_backward_huber": REPLAYS,
    "read_06_backward_pow": REPLAYS,
    "read_07_gradient_reversal_ctx_number": REPLAYS,
    "read_08_length_slice_and_norm": REPLAYS,
    "read_09_index_by_a_read": REPLAYS,
    "read_10_dim_by_a_read": REPLAYS,
    "read_11_wrong_argument_gets_the_number": REPLAYS,
    "read_12_dropout_p_of_a_half": REPLAYS,
    "read_13_addmm_beta_takes_alphas_number": REPLAYS,
    "read_14_number_used_twice_one_way_unseen": REPLAYS,
    "read_15_constant_result_follows_a_read": REPLAYS,
    "read_16_attribute_set_to_a_read": REPLAYS,
    "rec_01_transformer_fast_path": REPLAYS,
    "rec_02_scripted_module_eval": "unreplayable_op",
    "switch_01_autocast_dtype_for_contexts_inside": REPLAYS,
    "tensor_01_hook_on_an_argument": REPLAYS,
    "tensor_02_forward_mode_argument": REPLAYS,
    "tensor_03_plain_tensor_of_a_module_transposed": REPLAYS,
    "tensor_04_plain_tensor_of_a_module_gets_other_data": REPLAYS,
    "tensor_05_plain_leaf_begins_to_require_grad": REPLAYS,
    "wild_01_update_by_a_flag_of_a_package": REPLAYS,
    "wild_02_counter_of_a_package": REPLAYS,
    "wild_03_divisor_of_a_package": REPLAYS,
    "wild_04_own_package": REPLAYS,
    "wild_05_compiled_in_a_package": "unreplayable_op",
    "wild_06_higher_order_ops": {case: "unreplayable_op" for case in ("flex_attention", "cond", "scan")},
    "wild_07_counters_given_to_c": {case: "scalar_varies" for case in ("table[n]", "operator.index(n)")},
    "wild_08_broadcast_baddbmm": REPLAYS,
    "wild_09_huber_loss_used_further": REPLAYS,
    "wild_10_clamp_under_a_schedule": REPLAYS,
    "wild_11_numbers_that_autograd_saves": {"celu, varies": "scalar_varies"},
    "wild_12_index_by_a_read": REPLAYS,
    "wild_13_probability_of_a_read_action": REPLAYS,
    "wild_14_random_shift": REPLAYS,
    "wild_15_ppo_under_schedules": REPLAYS,
    "wild_16_things_that_the_step_does_not_read": REPLAYS,
    "wild_17_refused_without_need": REPLAYS,
    "wrap_01_super_step_of_a_decorated_method": REPLAYS,
    "wrap_02_class_method_replaced": REPLAYS,
}


def load(name):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def runs():
    """(name, case, outcome); cases that an entry does not name replay."""
    for name, outcome in OUTCOMES.items():
        for case in getattr(load(name), "CASES", {None: None}):
            yield name, case, outcome if isinstance(outcome, str) else outcome.get(case, REPLAYS)


def lines_refused(name, code):
    text = (FOLDER / f"{name}.py").read_text().splitlines()
    return {i for i, line in enumerate(text, 1) if line.endswith(f"# refused: {code}")}


def test_each_program_has_an_outcome():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(OUTCOMES)


@pytest.fixture(autouse=True)
def switches_as_they_were():
    dtype = torch.get_autocast_dtype("cpu")
    yield
    torch.set_autocast_dtype("cpu", dtype)


@pytest.mark.parametrize("name, case, outcome", runs())
def test_gives_what_eager_gives(name, case, outcome):
    program = load(name)
    given = () if case is None else (program.CASES[case],)
    expected, _ = program.play(lambda function: function, *given)
    found, step = program.play(lambda function: steptape.wrap(function, verify={"first": True, "rate": 0.0}), *given)
    assert found == expected, step.explain()
    if outcome == REPLAYS:
        assert step.stats["replayed"] > 0, step.explain()
        return
    assert step.stats["replayed"] == 0, step.explain()
    at = [(refusal["file"], refusal["line"]) for refusal in step.stats["refusals"] if refusal["code"] == outcome]
    assert at, step.explain()
    if lines := lines_refused(name, outcome):
        assert any(file == str(FOLDER / f"{name}.py") and line in lines for file, line in at), step.explain()
