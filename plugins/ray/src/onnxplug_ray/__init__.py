"""Runs ONNX models on Ray: batches of Ray Data, and deployments of Ray Serve."""

from typing import Final

from onnxplug_ray.deployment import deployment
from onnxplug_ray.errors import (
    CannotDeploy,
    ColumnError,
    EpNotInCluster,
    EpNotOnNode,
    ModelNotShared,
    RowError,
)
from onnxplug_ray.predictor import Predictor
from onnxplug_ray.resources import actor_options, node_resources
from onnxplug_ray.sharing import SharedModel, share
from onnxplug_ray.survey import Survey, SurveyRow, survey

__version__: Final = "0.1.0"

__all__ = [
    "CannotDeploy",
    "ColumnError",
    "EpNotInCluster",
    "EpNotOnNode",
    "ModelNotShared",
    "Predictor",
    "RowError",
    "SharedModel",
    "Survey",
    "SurveyRow",
    "actor_options",
    "deployment",
    "node_resources",
    "share",
    "survey",
]
