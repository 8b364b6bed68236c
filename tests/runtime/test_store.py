from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfrontier.runtime.errors import StoreError
from fairfrontier.runtime.secret import VARIABLE
from fairfrontier.runtime.store import MANIFEST, Store, canonical_json

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=10,
)


def reverse(value):
    if isinstance(value, dict):
        return {key: reverse(value[key]) for key in reversed(value)}
    return [reverse(each) for each in value] if isinstance(value, list) else value


def write(store, description=None, text="hello", kind="fit"):
    description = description or {"a": 1}
    key = store.key(kind, description)
    with store.writing(kind, key, description) as folder:
        (folder / "scores").mkdir()
        (folder / "scores" / "test.npy").write_bytes(text.encode())
        (folder / "facts.json").write_text("{}")
    return key


def leftovers(store):
    return [path for path in store.folder.glob(".unfinished@*") if path.is_dir()]


@settings(max_examples=60, deadline=None)
@given(description=st.dictionaries(st.text(max_size=4), PLAIN, max_size=5))
def test_keys_do_not_depend_on_order(description):
    store = Store("nowhere")
    assert store.key("fit", description) == store.key("fit", reverse(description))
    assert store.key("fit", description) != store.key("points", description)
    assert json.loads(canonical_json(description)) == description


@settings(max_examples=60, deadline=None)
@given(one=PLAIN, other=PLAIN)
def test_different_values_have_different_texts(one, other):
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (canonical_json(one) == canonical_json(other)) == same


def test_numpy_scalars_and_tuples_are_plain():
    assert canonical_json({"b": (np.int64(1), np.float64(0.5)), "a": np.bool_(True)}) == (
        '{"a":true,"b":[1,0.5]}'
    )
    for wrong in ({"a": {1}}, {"a": np.ones(2)}):
        with pytest.raises(TypeError):
            canonical_json(wrong)
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("nan"))


def test_what_is_written_is_read(tmp_path):
    store = Store(tmp_path / "store")
    assert store.read("fit", store.key("fit", {"a": 1})) is None
    key = write(store)
    folder = store.read("fit", key)
    assert folder == tmp_path / "store" / "fit" / key[:2] / key
    assert (folder / "scores" / "test.npy").read_bytes() == b"hello"
    assert store.describe("fit", key) == {"a": 1}
    assert leftovers(store) == []


def test_digests_tell_contents_apart(tmp_path):
    one, same, other = (Store(tmp_path / name) for name in "abc")
    digests = [
        store.digest("fit", write(store, text=text))
        for store, text in ((one, "x"), (same, "x"), (other, "y"))
    ]
    assert digests[0] == digests[1] != digests[2]
    assert one.digest("fit", "0" * 64) is None


def alter(entry):
    (entry / "scores" / "test.npy").write_bytes(b"hellO")


def remove(entry):
    (entry / "facts.json").unlink()


def remove_manifest(entry):
    (entry / MANIFEST).unlink()


def cut_manifest(entry):
    (entry / MANIFEST).write_text((entry / MANIFEST).read_text()[:-20])


def forge_manifest(entry):
    manifest = json.loads((entry / MANIFEST).read_text())
    manifest["description"]["a"] = 2
    (entry / MANIFEST).write_text(json.dumps(manifest))


def repeat_key(entry):
    """Say something else first, which the digest does not cover."""
    text = (entry / MANIFEST).read_text()
    (entry / MANIFEST).write_text(text.replace("{", '{"description": {"a": 2},', 1))


def pipe_manifest(entry):
    remove_manifest(entry)
    os.mkfifo(entry / MANIFEST)


def seal(entry, change):
    """Change a manifest, and its digest with it, as anybody can who may write."""
    manifest = json.loads((entry / MANIFEST).read_text())
    del manifest["digest"]
    change(manifest)
    manifest["digest"] = hashlib.sha256(canonical_json(manifest).encode()).hexdigest()
    (entry / MANIFEST).write_text(json.dumps(manifest))


def list_elsewhere(entry):
    (entry.parent / "elsewhere").write_text("{}")
    facts = {"bytes": 2, "sha256": hashlib.sha256(b"{}").hexdigest()}
    seal(entry, lambda manifest: manifest["files"].update({"../elsewhere": facts}))


def pipe_file(entry):
    remove(entry)
    os.mkfifo(entry / "facts.json")
    seal(entry, lambda manifest: manifest["files"]["facts.json"].update(bytes=0))


def link_file(entry):
    (entry / "facts.json").rename(entry.parent / "elsewhere")
    (entry / "facts.json").symlink_to(entry.parent / "elsewhere")


def add_file(entry):
    (entry / "more.txt").write_text("more")


def add_draft(entry):
    """Add what `recover` would move in the place of a signed file."""
    draft = entry / "scores" / ".complete@x"
    draft.mkdir()
    for name in ("test.npy", ".plan"):
        (draft / name).symlink_to(entry / "facts.json")


def link_entry(entry):
    (entry / "scores").rename(entry.parent / "elsewhere")
    shutil.rmtree(entry)
    entry.symlink_to(entry.parent / "elsewhere")


@pytest.mark.parametrize(
    "damage",
    [
        *(alter, remove, cut_manifest, forge_manifest, repeat_key, pipe_manifest, list_elsewhere),
        *(pipe_file, link_file, add_file, add_draft, link_entry),
    ],
)
def test_a_damaged_entry_is_said_removed_and_made_again(tmp_path, caplog, damage):
    store = Store(tmp_path)
    key = write(store)
    damage(store.path("fit", key))
    with caplog.at_level(logging.WARNING):
        assert store.read("fit", key) is None
    assert len(caplog.records) == 1
    assert "damaged" in caplog.text
    assert "computed again" in caplog.text
    assert not store.path("fit", key).exists()
    assert write(store) == key
    assert store.read("fit", key) is not None
    assert leftovers(store) == []


def test_a_damaged_entry_that_nobody_read_is_replaced(tmp_path):
    store = Store(tmp_path)
    entry = store.path("fit", write(store))
    alter(entry)
    write(store)
    assert store.find_fault("fit", entry.name) is None


def test_files_are_those_of_the_manifest(tmp_path):
    store = Store(tmp_path)
    key = write(store)
    entry = store.path("fit", key)
    assert store.list_files("fit", key) == {
        name: entry / name for name in ("facts.json", "scores/test.npy")
    }
    (entry / "notes.txt").symlink_to(entry.parent)
    assert store.list_files("fit", key) is None


def forge(entry):
    """Change a file, and the digests with it, as anybody can who may write."""
    (entry / "facts.json").write_text('{"forged": true}')
    manifest = json.loads((entry / MANIFEST).read_text())
    fact = manifest["files"]["facts.json"]
    fact["bytes"] = len('{"forged": true}')
    fact["sha256"] = hashlib.sha256(b'{"forged": true}').hexdigest()
    signature = manifest.pop("signature", None)
    manifest.pop("digest")
    manifest["digest"] = hashlib.sha256(canonical_json(manifest).encode()).hexdigest()
    if signature is not None:
        manifest["signature"] = signature
    (entry / MANIFEST).write_text(json.dumps(manifest))


def test_what_is_not_signed_with_the_secret_is_made_again(tmp_path, monkeypatch, caplog):
    store = Store(tmp_path / "store")
    monkeypatch.delenv(VARIABLE, raising=False)
    unsigned = write(store, {"a": 1})
    monkeypatch.setenv(VARIABLE, str(tmp_path / "one"))
    assert store.read("fit", unsigned) is None
    assert "not signed with the project's secret" in caplog.text
    key = write(store, {"a": 1})
    entry = store.read("fit", key)
    assert entry is not None
    # Who does not sign reads what is signed, and cannot tell a forgery.
    monkeypatch.delenv(VARIABLE)
    digest = store.digest("fit", key)
    forge(entry)
    assert store.read("fit", key) == entry
    assert store.digest("fit", key) != digest
    monkeypatch.setenv(VARIABLE, str(tmp_path / "one"))
    assert store.read("fit", key) is None
    key = write(store, {"a": 1})
    monkeypatch.setenv(VARIABLE, str(tmp_path / "other"))
    assert store.read("fit", key) is None


def test_every_file_of_an_entry_is_signed(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "secret"))
    store = Store(tmp_path / "store")
    description = {"a": 1}
    key = store.key("fit", description)
    # A model's own manifest has the same name, and says how it decides.
    for name, content in (("model-0/manifest.json", "forged"), ("model-1/manifest.json", "added")):
        with store.writing("fit", key, description) as folder:
            (folder / "model-0").mkdir()
            (folder / "model-0" / MANIFEST).write_text("{}")
        entry = store.read("fit", key)
        (entry / name).parent.mkdir(exist_ok=True)
        (entry / name).write_text(content)
        assert store.read("fit", key) is None


def test_an_entry_under_another_key_is_not_taken(tmp_path, caplog):
    store = Store(tmp_path)
    entry = store.path("fit", write(store))
    wrong = "0" * 64
    store.path("fit", wrong).parent.mkdir(parents=True)
    entry.rename(store.path("fit", wrong))
    assert store.read("fit", wrong) is None
    assert "altered" in caplog.text


def break_off(store, key):
    with store.writing("fit", key, {}) as folder:
        (folder / "file").write_text("half")
        raise RuntimeError("half")


def test_a_failed_block_leaves_nothing(tmp_path):
    store = Store(tmp_path)
    key = store.key("fit", {})
    with pytest.raises(RuntimeError, match="half"):
        break_off(store, key)
    assert store.read("fit", key) is None
    assert leftovers(store) == []


WRITER = """
import sys, time
from fairfrontier.runtime.store import Store
store = Store(sys.argv[1])
key = store.key("fit", {"a": 1})
with store.writing("fit", key, {"a": 1}) as folder:
    (folder / "file").write_text("half")
    print("writing", flush=True)
    time.sleep(60)
"""


def test_kill_nine_in_the_middle_of_a_write(tmp_path):
    store = Store(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "writing\n"
        write(store, {"other": 1})
        assert len(leftovers(store)) == 1, "a writer that lives is left alone"
        process.send_signal(signal.SIGKILL)
    key = store.key("fit", {"a": 1})
    assert store.read("fit", key) is None
    assert len(leftovers(store)) == 1
    write(store)
    assert leftovers(store) == []
    assert store.read("fit", key) is not None


def test_of_two_writers_the_first_wins(tmp_path):
    store = Store(tmp_path)
    key = store.key("fit", {})
    with store.writing("fit", key, {}) as slow:
        (slow / "file").write_text("slow")
        with Store(tmp_path).writing("fit", key, {}) as fast:
            (fast / "file").write_text("fast")
    assert (store.read("fit", key) / "file").read_text() == "fast"
    assert leftovers(store) == []


def test_many_writers_and_readers_at_once(tmp_path):
    store = Store(tmp_path)
    key = store.key("fit", {"a": 1})
    seen, failures = [], []

    def work():
        try:
            for _ in range(5):
                found = store.read("fit", key)
                seen.append(found)
                write(Store(tmp_path))
                time.sleep(0)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.read("fit", key) is not None
    assert leftovers(store) == []


def test_a_disk_that_is_full_is_said_while_an_entry_is_made(tmp_path):
    store = Store(tmp_path)

    def write_much():
        with store.writing("fit", store.key("fit", {}), {}) as work:
            (work / "scores").symlink_to("/dev/full")
            (work / "scores").write_text("more than nothing")

    with pytest.raises(StoreError):
        write_much()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["file/store", "/proc/store"])
def test_a_folder_that_cannot_be_written_is_explained(tmp_path, place):
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / place)
    with pytest.raises(StoreError) as caught:
        write(store)
    assert "project root" in caught.value.mend
    with pytest.raises(StoreError):
        store.check_writable()
    assert store.read("fit", "0" * 64) is None


def test_a_writable_folder_passes_the_check(tmp_path):
    Store(tmp_path / "new").check_writable()
    assert leftovers(Store(tmp_path / "new")) == []
