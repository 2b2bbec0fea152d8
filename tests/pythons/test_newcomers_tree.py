"""A newcomer's Debian has the files of a clone, and this machine's way to packages and nothing else of it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.needs import needs_programs
from tests.pythons.packages import let_install
from tests.pythons.tree import copy_clean


@needs_programs("git")
def test_what_git_does_not_know_is_not_copied(tmp_path: Path) -> None:
    tree, copy = tmp_path / "tree", tmp_path / "copy"
    (tree / "src").mkdir(parents=True)
    for name in ("src/kept.sh", "src/deleted.py", "src/ignored.so", ".gitignore"):
        (tree / name).write_text("*.so\n")
    (tree / "src/kept.sh").chmod(0o755)
    (tree / "src/a link").symlink_to("kept.sh")
    subprocess.run(["git", "init", "--quiet"], cwd=tree, check=True)
    subprocess.run(["git", "add", "."], cwd=tree, check=True)
    (tree / "src/deleted.py").unlink()
    (tree / "src/kept.sh").write_text("changed")
    copy_clean(copy, (os.getuid(), os.getgid()), tree)
    files = {str(path.relative_to(copy)) for path in copy.rglob("*") if not path.is_dir()}
    assert files == {".gitignore", "src/kept.sh", "src/a link"}
    assert (copy / "src/kept.sh").read_text() == "changed"
    assert os.access(copy / "src/kept.sh", os.X_OK)


def test_pip_gets_its_settings_and_the_files_they_name(tmp_path: Path) -> None:
    authority = tmp_path / "authority.pem"
    authority.write_text("a certificate")
    given = {
        "PIP_CERT": str(authority),
        "PIP_FIND_LINKS": str(tmp_path),
        "https_proxy": "http://proxy.example:3128",
        "HOME": "/root",
        "API_TOKEN": "secret",
    }
    root = tmp_path / "root"
    passed = let_install(root, given)
    assert passed == {"PIP_CERT": str(authority), "https_proxy": "http://proxy.example:3128"}
    assert (root / authority.relative_to("/")).read_text() == "a certificate"


def test_a_link_out_of_the_tree_is_replaced_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("as before")
    link = tmp_path / "root/etc/hosts"
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    let_install(tmp_path / "root", {})
    assert outside.read_text() == "as before"
    assert not link.is_symlink()
