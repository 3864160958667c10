"""What is in the folder of a local cluster and not Regnum's."""

import json

from regnum_local.belonging import clusters_in
from regnum_local.restarting import REQUESTS, forget_requests


def test_requests_that_are_none_stay(tmp_path):
    folder = tmp_path / REQUESTS
    own = ("0" * 32 + ".json", "a" * 32 + ".answer.json")
    guests = (".DS_Store", "notes.json", "0" * 32 + ".json.swp", "0" * 31 + ".json")
    folder.mkdir()
    for name in (*own, *guests):
        (folder / name).write_text("{}")
    (folder / "lost+found").mkdir()
    (folder / ("f" * 32 + ".json")).mkdir()
    forget_requests(tmp_path)
    assert {path.name for path in folder.iterdir()} == {*guests, "lost+found", "f" * 32 + ".json"}


def test_a_copy_of_a_brokers_folder_belongs_to_no_cluster_here(tmp_path):
    for name, id in (("broker-1", "ours"), ("broker-1.old", "theirs"), ("broker-01", "theirs"), ("broker-2.json", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.json").write_text(json.dumps({"cluster_id": id}))
    (tmp_path / "broker-3").write_text("a file")
    (tmp_path / "broker-4" / "meta.json").mkdir(parents=True)
    assert clusters_in(tmp_path) == {"ours"}
