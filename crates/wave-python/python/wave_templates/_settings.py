"""The settings of each stage beyond the signatures of the functions: the keys of its recipe table, which are the
flags of its command. ``wave help STAGE`` describes them."""

from __future__ import annotations

from typing import Any, Dict, List, TypedDict, Union

from ._run import PathLike


class _Training(TypedDict, total=False):
    """Settings of every stage that trains."""

    hold_out: int
    mean: List[float]
    std: List[float]
    accumulate: int
    lr_schedule: str
    min_lr_ratio: float
    weight_decay: float
    warmup_epochs: float
    label_smoothing: float
    ema: float
    clip: float
    test_epochs: int
    patience: int
    time_limit: float
    drop_path: float
    muon: bool
    precision: str
    recompute: bool
    crop_padding: int
    flip: bool
    resized_crop: float
    rand_augment: str
    erasing: float
    mixup: float
    cutmix: float
    repeats: int
    views: int
    view_seed: int
    checkpoint_steps: int
    checkpoint_minutes: float
    keep: str


class _Templates(_Training, total=False):
    """Settings of every stage that trains templates or scalers for models of many sizes."""

    depths: List[int]
    widths: List[int]
    anchors: int
    scaler_lr_ratio: float
    dtype: str
    growth: float
    growth_power: float
    mlp_ratios: List[float]
    head_widths: List[int]
    image_sizes: List[int]
    patches: List[int]
    variant_share: float


class CondenseSettings(_Templates, total=False):
    """``[condense]``."""

    grow: PathLike
    train: str
    template_size: int
    templates: List[int]
    share_mlp: bool
    kronecker: str
    template_start: str
    scaler_start: str
    ancestor_output: str
    kl_weight: float
    ce_weight: float
    temperature: float
    levels: List[Dict[str, Any]]
    auxiliary: Dict[str, Any]
    cache_top: Union[int, str]
    labels: PathLike
    prompt: List[str]


class AdaptSettings(_Templates, total=False):
    """``[adapt]``."""

    adapts: List[str]
    template_rank: int


class ExpandSettings(_Training, total=False):
    """``[expand]``."""

    templates_used: int
    scalers: str
    fill: str
    head_lr_ratio: float


class FinetuneSettings(_Training, total=False):
    """``[finetune]``."""

    kl_weight: float
    temperature: float
    freeze: List[str]
    layer_scale: float
    mlp_scalar: float
    depths: List[int]
    widths: List[int]
    cache: PathLike
    cache_top: Union[int, str]
    growth: float
    growth_power: float
    labels: PathLike
    prompt: List[str]
    format: str
    dtype: str


class InitSettings(TypedDict, total=False):
    """``[init]``."""

    mlp_ratio: float
    kernel: int
    activation: str
    stages: List[int]
    dilation: str
    sawtooth: bool
    factored: bool
    class_token: bool
    positions: str
    position_scale: float
    mlp_mean: str
    qk: List[float]
    vp: List[float]
    mimetic: str
    gamma: float
    zero: str
    scaled: str
    rest: str
    layers: str
    blocks: int
    similarity: List[float]
    train_limit: int
