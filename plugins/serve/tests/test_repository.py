"""Models come and go whole, whoever asked for it, and by names that harm nobody."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import onnxplug
import onnxplug_serve
from onnxplug_serve.errors import NoSuchModel, NotReady
from onnxplug_serve.metrics import Metrics
from onnxplug_serve.repository import Repository


def _repository(**settings: Any) -> Repository:
    return Repository(onnxplug_serve.Settings(drain=5, **settings), Metrics())


@pytest.mark.parametrize("what", ["load", "unload"])
def test_a_change_that_nobody_waits_for_is_made_to_its_end(
    folder: Path, what: str
) -> None:
    """As when a call has a deadline, or its client goes away."""

    async def change() -> None:
        repository = _repository(models={"layer": folder / "layer.onnx"})
        await repository.load_all()
        old = repository.find("layer")
        asked = asyncio.create_task(getattr(repository, what)("layer"))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        for _ in range(1000):
            try:
                if repository.find("layer") is not old:
                    break
            except NotReady:
                break
            await asyncio.sleep(0.01)
        else:
            raise AssertionError("the change was not made")
        await repository.close()  # which waits for changes
        with pytest.raises(onnxplug.errors.OnnxplugError, match="closed"):
            old.session.run(None, {"x": np.ones((1, 4), np.float32)})

    asyncio.run(change())


def test_folders_that_are_no_names_are_told_and_left(
    tmp_path: Path, save_scale: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("good", "a\nb", "a#b", "\x1b[2J", ".hidden"):
        save_scale(tmp_path / name / "1" / "model.onnx", 2.0)

    async def find() -> list[str]:
        repository = _repository(repository=tmp_path)
        await repository.load_all()
        found = [each["name"] for each in repository.index()]
        await repository.close()
        return found

    with caplog.at_level(logging.ERROR, "onnxplug.serve"):
        assert asyncio.run(find()) == ["good"]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 3  # each once
    assert all(text.isprintable() for text in told)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../good", "/etc", "good/1", "good\0", "GOOD", "a" * 10_000]
)
def test_what_is_not_in_the_folder_is_not_found(
    tmp_path: Path, save_scale: Any, name: str
) -> None:
    save_scale(tmp_path / "models" / "good" / "1" / "model.onnx", 2.0)
    save_scale(tmp_path / "1" / "model.onnx", 2.0)

    async def load() -> None:
        repository = _repository(repository=tmp_path / "models")
        for change in (repository.load, repository.unload):
            with pytest.raises(NoSuchModel):
                await change(name)

    asyncio.run(load())
