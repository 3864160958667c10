"""The images' files: what they are made from is there, and what they say fits the manifests and the project."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
DOCKER = ROOT / "deploy" / "docker"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMAGES = {"services": "Dockerfile", "failovers": "failovers.Dockerfile"}


def instructions(text: str) -> list[tuple[str, str]]:
    """Instruction and arguments, without comments, lines that go on joined."""
    lines = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    joined = re.sub(r"\\\n\s*", " ", lines)
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines() if line.strip())]


def copied(text: str) -> list[str]:
    """Sources in the context."""
    return [
        source
        for word, rest in instructions(text)
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    ]


@pytest.fixture(params=list(IMAGES))
def image(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def text(image: str) -> str:
    return (DOCKER / IMAGES[image]).read_text(encoding="utf-8")


def test_a_context_has_what_is_copied_and_no_tests(image: str, text: str, tmp_path: Path) -> None:
    context = tmp_path / "context"
    made = subprocess.run([DOCKER / "build.sh", "context", context, image], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    filled = (context / "Dockerfile").read_text(encoding="utf-8")
    arguments = dict(rest.split("=", 1) for word, rest in instructions(filled) if word == "ARG" and "=" in rest)
    assert arguments["VERSION"] == f'"{PROJECT["version"]}"'
    assert made.stdout.strip() == f"{'regnum' if image == 'services' else f'regnum-{image}'}:{PROJECT['version']}"
    assert copied(filled) == copied(text) != []
    assert [source for source in copied(filled) if not (context / source).exists()] == []
    assert not (context / "tests").exists()
    assert not (context / "bench").exists()


def test_a_folder_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    made = subprocess.run([DOCKER / "build.sh", "context", tmp_path], capture_output=True, text=True, check=False)
    assert made.returncode == 1
    assert "is not empty" in made.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_where_nothing_builds_images_it_says_what_does(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "dirname", "sed", "head", "git", "tar"):
        program = shutil.which(name)
        assert program is not None
        (tools / name).symlink_to(program)
    made = subprocess.run(
        [DOCKER / "build.sh", "images"], capture_output=True, text=True, check=False, env={"PATH": str(tools)}
    )
    assert made.returncode == 1
    assert "install buildah or podman" in made.stderr


@pytest.mark.parametrize("base", ["", "python:3.11-slim-bookworm@sha256:" + "c" * 64])
def test_a_base_by_its_digest_is_what_is_built_on_and_one_without_is_told(tmp_path: Path, base: str) -> None:
    builder = tmp_path / "buildah"
    builder.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$(dirname "$0")/given"\n')
    builder.chmod(0o755)
    made = subprocess.run(
        [DOCKER / "build.sh", "images", "services"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "BUILDER": str(builder), "BASE": base},
    )
    assert f"BASE={base or 'python:3.11-slim-bookworm'}" in (tmp_path / "given").read_text().splitlines()
    assert ("named without a digest" in made.stderr) is not bool(base)


def test_every_package_that_is_fetched_has_its_hash_checked(text: str) -> None:
    fetching = [
        part
        for word, rest in instructions(text)
        if word == "RUN"
        for part in rest.split("&&")
        if re.search(r"pip .*\b(install|wheel|download)\b", part) and "--no-index" not in part
    ]
    assert len(fetching) == 2
    assert all("--require-hashes" in part and re.search(r"-r /locks/\w+\.lock", part) for part in fetching)


def test_an_image_runs_as_the_user_of_the_manifests_on_the_python_of_the_project(text: str) -> None:
    told = instructions(text)
    (broker,) = [
        item
        for item in yaml.safe_load_all((ROOT / "deploy/k8s/base/broker.yaml").read_text(encoding="utf-8"))
        if item["kind"] == "StatefulSet"
    ]
    context = broker["spec"]["template"]["spec"]["securityContext"]
    assert ("USER", f"{context['runAsUser']}:{context['runAsGroup']}") in told
    assert told[-1][0] == "CMD"
    assert {rest.split()[0] for word, rest in told if word == "FROM"} == {"${BASE}"}
    (base,) = [rest.removeprefix("BASE=") for word, rest in told if word == "ARG" and rest.startswith("BASE=")]
    image, _, tag = base.partition(":")
    assert (image, f">={tag.partition('-')[0]}") == ("python", PROJECT["requires-python"])


def test_no_version_stands_in_a_file_that_would_have_to_be_changed_with_it(text: str) -> None:
    code = "\n".join(f"{word} {rest}" for word, rest in instructions(text))
    assert PROJECT["version"] not in code
    assert 'org.opencontainers.image.version="${VERSION}"' in code
    assert 'org.opencontainers.image.revision="${COMMIT}"' in code


def test_what_pods_run_is_a_command_of_the_image() -> None:
    commands = [
        container["command"]
        for name in ("broker", "election", "metadata", "quota")
        for item in yaml.safe_load_all((ROOT / "deploy/k8s/base" / f"{name}.yaml").read_text(encoding="utf-8"))
        if item["kind"] == "StatefulSet"
        for container in item["spec"]["template"]["spec"]["containers"]
    ]
    assert len(commands) == 4
    assert {command[0] for command in commands} <= set(PROJECT["scripts"])


def test_manifests_name_the_images_that_the_same_checkout_makes() -> None:
    """``make images`` takes its tag from pyproject.toml: whoever applies the manifests then finds what was made."""
    named = {
        (image["name"], image["newTag"])
        for file in (ROOT / "deploy" / "k8s").rglob("kustomization.yaml")
        for image in yaml.safe_load(file.read_text(encoding="utf-8")).get("images", ())
        if image["name"].startswith("regnum")
    }
    assert named == {("regnum", PROJECT["version"]), ("regnum-failovers", PROJECT["version"])}
    page = (ROOT / "deploy/k8s/README.md").read_text(encoding="utf-8")
    assert re.findall(r"newName: \S+/(regnum\S*), newTag: ([^}\s]+)}", page) == [
        ("regnum", PROJECT["version"]),
        ("regnum-failovers", PROJECT["version"]),
    ]


def test_a_version_is_a_tag_of_an_image() -> None:
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", PROJECT["version"]), "a local part (+...) is no tag"


def test_the_changelog_has_what_comes_next_and_every_release_says_its_day() -> None:
    """What the procedure of releases leaves behind: work goes on under `.dev0`, with a list of what is new."""
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    released = [head for head in heads if head != "Unreleased"]
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ - \d{4}-\d\d-\d\d", head) for head in released), released
    if ".dev" in PROJECT["version"]:
        assert heads[0] == "Unreleased"
        assert PROJECT["version"].partition(".dev")[0] not in {head.partition(" ")[0] for head in released}
    else:
        assert released[0].partition(" ")[0] == PROJECT["version"]
