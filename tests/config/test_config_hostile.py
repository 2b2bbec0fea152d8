"""Whatever a file holds, the outcome is a Config or a ConfigError, and soon."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cloudgraft.config import Config, ConfigError, parse
from cloudgraft.validation.document import MAX_DEPTH


def _line(text: str, base_dir: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, base_dir)
    [problem] = caught.value.problems
    return str(problem)


def test_a_billion_laughs_are_refused(tmp_path: Path) -> None:
    layers = ["a: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    layers += [f"b{i}: &a{i + 1} [{', '.join([f'*a{i}'] * 10)}]" for i in range(12)]
    line = _line("\n".join(layers), tmp_path)
    assert "the file expands to more than 50000 values" in line


def test_a_billion_laughs_by_merge_are_refused(tmp_path: Path) -> None:
    layers = ["a: &a0 {x: 1}"]
    layers += [f"b{i}: &a{i + 1} {{<<: [{', '.join([f'*a{i}'] * 10)}]}}" for i in range(12)]
    line = _line("\n".join(layers), tmp_path)
    assert "the file expands to more than 50000 values" in line


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting_is_refused(tmp_path: Path, opening: str) -> None:
    line = _line(opening * 5000, tmp_path)
    assert f"nested more than {MAX_DEPTH} levels deep" in line


def _outcome(text: str, base_dir: Path) -> Config | ConfigError:
    """Nothing else may come out, whatever goes in."""
    try:
        return parse(text, base_dir)
    except ConfigError as error:
        return error


def _is_proper(outcome: Config | ConfigError) -> bool:
    if isinstance(outcome, Config):
        return True
    lines = str(outcome).split("\n")
    return len(lines) == len(outcome.problems) > 0 and all(line.isprintable() for line in lines)


WORDS = [
    *(
        "cluster",
        "server",
        "providers",
        "type",
        "memory",
        "plugin",
        "externalgrpc",
        "listen",
        "tls",
        "cert",
        "key",
        "snapshot",
        "clouds",
        "driver",
        "nodeGroups",
        "store",
    ),
    *(
        ": ",
        ":",
        "- ",
        "-",
        "\n",
        "\n  ",
        "\n    ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "#",
        "'",
        '"',
        "|",
        ">",
        "&a ",
        "*a",
        "<<",
    ),
    *(
        "!!int ",
        "!!str ",
        "!x ",
        "%YAML 1.1\n",
        "---\n",
        "...\n",
        "yes",
        "no",
        "null",
        "~",
        "0x1f",
        "1:30",
        "1e999",
        ".nan",
    ),
    *(
        "2024-02-30",
        "=",
        "\\",
        "\t",
        "\x00",
        "\x85",
        "\u2028",
        "\ud800",
        "é",
        "🦄",
        "9" * 40,
        "5s",
        "127.0.0.1:0",
        "?",
        "? ",
    ),
]


@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=60
)
@given(words=st.lists(st.sampled_from(WORDS), max_size=40))
def test_no_text_ever_gives_anything_but_a_config_or_a_config_error(tmp_path: Path, words: list[str]) -> None:
    assert _is_proper(_outcome("".join(words), tmp_path))


VALUES: st.SearchStrategy[object] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.dates()
    | st.binary(max_size=4)
    | st.sampled_from(["memory", "plugin", "externalgrpc", "5s", "a:1", "127.0.0.1:0", "console", ".", "a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *(
                        "type",
                        "name",
                        "address",
                        "tls",
                        "command",
                        "env",
                        "snapshot",
                        "options",
                        "cert",
                        "key",
                        "ca",
                        "max",
                    ),
                    *(
                        "listen",
                        "ops",
                        "insecure",
                        "deadline",
                        "level",
                        "format",
                        "refreshEvery",
                        "backoff",
                        "clientCA",
                    ),
                    *(
                        "driver",
                        "engine",
                        "guards",
                        "maxSpendPerDay",
                        "amount",
                        "currency",
                        "id",
                        "cloud",
                        "maxSize",
                        "machine",
                        "zones",
                        "template",
                        "labels",
                        "capacity",
                        "taints",
                        "price",
                        "postgresql",
                        "user",
                        "[key]",
                        "driver=plugin",
                    ),
                ]
            )
            | st.text(max_size=4),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@settings(
    deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=30
)
@given(
    data=st.fixed_dictionaries(
        {"cluster": st.just("a") | VALUES, "providers": st.lists(VALUES, max_size=3) | VALUES},
        optional={
            "server": VALUES,
            "log": VALUES,
            "extra": VALUES,
            "store": VALUES,
            "clouds": st.dictionaries(st.sampled_from(["a", "driver=plugin", "[key]"]), VALUES, max_size=2) | VALUES,
            "nodeGroups": st.lists(VALUES, max_size=3) | VALUES,
            "guards": VALUES,
            "engine": VALUES,
            "admin": VALUES,
        },
    )
)
def test_no_structure_ever_gives_anything_but_a_config_or_a_config_error(
    tmp_path: Path, data: dict[str, object]
) -> None:
    assert _is_proper(_outcome(yaml.safe_dump(data, allow_unicode=True), tmp_path))
