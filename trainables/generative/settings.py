"""What the three tasks let users choose. A later task of the chain repeats what shapes the runs that it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainables.generative.dit import NOISES, PREDICTIONS, TIMES
from trainables.generative.jepa import TEACHERS, TWELFTHS, layers_of
from trainables.generative.probe import LESSONS, PROBES
from trainables.generative.shapes import ShapeSettings, seen_of
from trainables.generative.tokenizers import KINDS, NETWORKS, STAGES
from trainables.generative.trunk import DROPOUTS, EMBEDDINGS
from trainables.settings import alternatives, setting
from trainables.spec import LARGEST, LIMITS

HEADS = ("dit", "maskgit", "givt", "mar")
CONDITIONINGS = ("full", "dropout", "quantised", "both")
FITS = ("seen", "all")
DIFFUSION = ("predicts", "noise", "input_scale", "ddim_steps")
OF_JEPA = ("jepa_layers", "jepa_teacher")
JEPA = ("jepa", *OF_JEPA)
OF_HEAD = {
    "dit": (*DIFFUSION, *JEPA),
    "maskgit": ("smoothing", "rounds", "temperature", *JEPA),
    "givt": ("mixture", "variance_scale", "rounds", "temperature"),
    "mar": (*DIFFUSION, "rounds", "head_width", "head_depth", "head_draws"),
}
OF_KIND = {"vq": ("codes",), "vae": ()}
OF_CONDITIONING = dict.fromkeys(("dropout", "both"), ("dropout", "dropout_mode"))
"""Settings of a generator that mean nothing with another objective, other tokens, or another conditioning. One may belong to
several."""
OF_NETWORK = {"conv": ("tokenizer_width",)}
OF_PROBE = {"cnn": ("probe_width",)}
BELONGING: Mapping[str, Mapping[str, Sequence[str]]] = {
    "decoder": OF_HEAD, "encoding": OF_KIND, "conditioning": OF_CONDITIONING, "network": OF_NETWORK,
    "probe": OF_PROBE,
}  # fmt: skip
"""By the setting that decides, and by its words: the settings that mean nothing with its other words."""
NOISE_OF_LOOKS = SAME, FRESH = ("same", "fresh")
AS_CLASSES = {"quantised": "full", "both": "dropout"}
"""Words of `conditioning` with which factors are told as the means of their classes, and those with which all else is the same.
Real pictures are told by these means in any case."""
USUAL_CHANNELS = {"linear": 12, "conv": 8}
VARIED = (
    "network", "codes", "fit", "stride", "channels", "embedding", "predicts", "noise", "input_scale", "smoothing",
    "temperature", "rounds", "pair", "radius_large", "radius_small", "radius_jitter", "colour_separation", "colour_jitter",
    "centre_jitter", "background",
)  # fmt: skip
"""Settings to which every study of generators gives an option of its own, which takes several values."""
WIDEST, DEEPEST = LIMITS["width"][1], 100
OF_LESSONS = (
    "Whether all pictures made of few codes that a probe learns from are clear (coded), or only those that keep a faint factor."
)
OF_TORN = "Largest share of the pieces of a worn picture that may show what is beside them while the picture stays clear."
RENDERED, REAL = "shapes2d", ("celeba", "clevrer")
"""Data sets: the one that is rendered, and those that are read from files."""


@dataclass(frozen=True, kw_only=True)
class PictureSettings(ShapeSettings):
    """Which pictures. How figures look means nothing to real ones."""

    dataset: str = setting(RENDERED, "Pictures: rendered figures, or real ones.", words=(RENDERED, *REAL))
    content: str = setting("", "Which files real pictures are of: the `content` of their `Album`.", later=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.content and self.dataset == RENDERED:
            raise ValueError(f"content is that of files, and {RENDERED} is rendered: omit it, or choose {alternatives(REAL)}")


@dataclass(frozen=True, kw_only=True)
class ProbeSettings(PictureSettings):
    decoder: str = setting("cnn", "Network of the probe.", words=PROBES)
    width: int = setting(16, "Channels of the probe's first layer; of its last layers more.", low=1, high=WIDEST)
    lessons: str = setting("coded", OF_LESSONS, words=LESSONS, later=True)
    torn: float = setting(0.0, OF_TORN, low=0, high=0.5, later=True)
    judged: int = setting(256, "Fresh pictures of each composition that the probe is judged on.", low=1, high=LARGEST)
    gate: float = setting(0.99, "Least share that the probe has to read right, of each composition.", low=0, high=1)


@dataclass(frozen=True, kw_only=True)
class NeedsProbe(PictureSettings):
    """The settings of a run that needs a probe."""

    probe: str = setting("cnn", "Network of the probe.", words=PROBES)
    probe_width: int = setting(16, "Channels of the probe's first layer.", low=1, high=WIDEST)
    probe_images: int = setting(16_384, "Pictures that the probe learns from, half of them unclear.", low=80, high=LARGEST)
    probe_steps: int = setting(2500, "Steps of the probe's training.", low=1, high=LARGEST)
    probe_lessons: str = setting("coded", OF_LESSONS, words=LESSONS, later=True)
    probe_torn: float = setting(0.0, OF_TORN, low=0, high=0.5, later=True)
    probe_gate: float = setting(0.99, "Least share that the probe has to read right, of each composition.", low=0, high=1)


@dataclass(frozen=True, kw_only=True)
class OfTokens(NeedsProbe):
    """The settings of a run that makes tokens or learns from them."""

    encoding: str = setting("vq", "Tokens: codes (vq), or continuous latents (vae).", words=KINDS)
    holdout: str = setting("train1", "Seen compositions: train1, fail1, or a list such as 000,100.", shown="train1")
    fit: str = setting("seen", "Compositions that the tokenizer learns from.", words=FITS)
    stride: int = setting(4, "Pixels from one token to the next: 2, 3, 4, 6 or 8.")
    channels: int = setting(None, "How many numbers make a token.", low=1, high=1024, shown="12 if linear, 8 if convolutional")
    codes: int = setting(96, "Codes of a vq.", low=2, high=65536)


@dataclass(frozen=True, kw_only=True)
class TokenizerSettings(OfTokens):
    decoder: str = setting("linear", "Network: linear on patches, or convolutional.", words=NETWORKS)
    width: int = setting(32, "Channels of a hidden layer of the convolutional network.", low=1, high=WIDEST)
    judged: int = setting(256, "Fresh pictures of each composition that are reconstructed.", low=1, high=LARGEST)
    gate: float = setting(
        0.97, "Least share of reconstructions that both judges have to read right, of each composition.", low=0, high=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_tokenizer(self, self.decoder)


@dataclass(frozen=True, kw_only=True)
class GeneratorSettings(OfTokens):
    decoder: str = setting(
        "dit",
        "Objective: diffusion of latents (dit), masked codes (maskgit), or masked latents as mixtures of Gaussians (givt) or "
        "diffused one by one (mar).",
        words=HEADS,
    )
    width: int = setting(96, "Width of the transformer.", low=2, high=WIDEST)
    depth: int = setting(4, "Blocks of the transformer.", low=1, high=DEEPEST)
    heads: int = setting(4, "Heads of a block.", low=1, high=1024)
    conditioning: str = setting(
        "full",
        "What a model is told of a picture it learns from: its size and colour as they are (full), the means of their classes "
        "(quantised), not always all (dropout), or both of the latter.",
        words=CONDITIONINGS,
    )
    dropout: float = setting(0.1, "Chance at which a factor is not told.", low=0.001, high=0.999, later=True)
    dropout_mode: str = setting(
        "null_sample",
        "What a model gets in place of a factor: a learned vector, by picture (null_sample), or zeros, by batch (zero_batch).",
        words=DROPOUTS,
        later=True,
    )
    embedding: str = setting(
        "linear", "How a model is told the factors: a sum, the SiLU of a sum, or two layers each.", words=EMBEDDINGS
    )
    predicts: str = setting("x0", "What dit and mar predict: clean latents or the noise.", words=PREDICTIONS)
    noise: str = setting(
        "zero-snr", "Noise that dit and mar add: by linear betas, or by these stretched until no signal is left.", words=NOISES
    )
    input_scale: float = setting(0.5, "Factor of the latents before noise is added to them.", low=0.001, high=1000)
    ddim_steps: int = setting(25, f"Steps of a sample of dit, or of a round of mar; divides {TIMES}.", low=1, high=TIMES)
    rounds: int = setting(8, "Rounds of a sample of maskgit, givt and mar.", low=1, high=1000)
    temperature: float = setting(
        3.0, "Randomness of which tokens maskgit and givt keep in a round: 0 keeps the likeliest; it falls to 0 by the last.",
        low=0, high=100,
    )
    smoothing: float = setting(0.0, "Label smoothing of maskgit.", low=0, high=0.5)
    mixture: int = setting(8, "Gaussians of a mixture of givt.", low=1, high=1024, later=True)
    variance_scale: float = setting(0.9, "Factor of the scales of givt in a sample.", low=0.01, high=10, later=True)
    head_width: int = setting(96, "Width of the diffusion of a token of mar.", low=2, high=WIDEST, later=True)
    head_depth: int = setting(2, "Residual blocks of the diffusion of mar.", low=1, high=DEEPEST, later=True)
    head_draws: int = setting(4, "Times at which mar looks at each token in a step.", low=1, high=1000, later=True)
    jepa: float = setting(
        0.0, "Weight of the auxiliary loss of dit and maskgit that guesses tokens of the whole picture; 0 for none.", low=0,
        high=1000, later=True,
    )  # fmt: skip
    jepa_layers: str = setting(
        "three",
        "Layers at which the auxiliary loss is added: one (at three quarters of the depth), three (about 7, 9 and 11 of 12), "
        "or a list, as 2+3+4.",
        later=True,
    )
    jepa_teacher: str = setting(
        "ema",
        "Whose tokens the auxiliary loss guesses: those of the average of the model (ema), of the model itself (same), or of "
        "itself with gradients (gradient).",
        words=TEACHERS,
        later=True,
    )
    ema: float = setting(0.999, "Decay of the average of the weights, which is what is sampled from.", low=0, high=0.999999)
    looks: int = setting(20, "How often the model is sampled along the way.", low=1, high=1000)
    judged: int = setting(32, "Samples of each composition at a look.", low=1, high=LARGEST)
    look_noise: str = setting(
        "same", "Noise that samples are drawn from: the same at every look, or fresh at each.", words=NOISE_OF_LOOKS, later=True
    )
    gate: float = setting(0.6, "A composition is generated if both judges read this share of its samples right.", low=0, high=1)
    network: str = setting("linear", "Network of the tokenizer: linear on patches, or convolutional.", words=NETWORKS)
    tokenizer_width: int = setting(32, "Channels of a hidden layer of a convolutional tokenizer.", low=1, high=WIDEST)
    tokenizer_images: int = setting(20_000, "Pictures that the tokenizer learns from.", low=8, high=LARGEST)
    tokenizer_steps: int = setting(3000, "Steps of the tokenizer's training.", low=1, high=LARGEST)
    tokenizer_gate: float = setting(0.97, "Least share of reconstructions that have to be read right.", low=0, high=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_tokenizer(self, self.network)
        if self.width % (2 * self.heads):
            raise ValueError(f"width must be a multiple of 2 heads = {2 * self.heads}, not {self.width}")
        if "predicts" in OF_HEAD[self.decoder] and self.predicts == "eps" and self.noise == "zero-snr":
            raise ValueError("predicts eps needs noise linear: with zero-snr nothing is left of a picture at the last time")
        if TIMES % self.ddim_steps:
            raise ValueError(f"ddim_steps must divide {TIMES}, as 25 and 50 do, not {self.ddim_steps}")
        if self.decoder == "maskgit" and self.encoding != "vq":
            raise ValueError("maskgit guesses codes, and a vae has none: choose --encoding vq")
        self._check_jepa()

    def _check_jepa(self) -> None:
        layers = "+".join(map(str, layers_of(self.jepa_layers, self.depth)))
        if self.jepa_layers not in TWELFTHS:
            object.__setattr__(self, "jepa_layers", layers)
        if not self.jepa and (self.jepa_layers, self.jepa_teacher) != ("three", "ema"):
            raise ValueError("jepa_layers and jepa_teacher mean nothing without the loss: give jepa a weight above 0, as 0.6")
        if self.jepa and self.jepa_teacher == "ema" and not self.ema and "jepa" in OF_HEAD[self.decoder]:
            raise ValueError("jepa_teacher ema is the average of the model, and ema 0 keeps none: choose same, or ema above 0")


OF_WHICH = ("decoder", "encoding", "conditioning", "jepa")
"""The settings that every study of generators asks for, and that decide which others mean something."""


def meaningless(settings: Mapping[str, object]) -> set[str]:
    """The settings that mean nothing beside these, which have all OF_WHICH: those that belong to other words of them, and of a
    loss that is not added. A setting of BELONGING that is not among them may have any word."""
    known = {which: belonging for which, belonging in BELONGING.items() if which in settings}
    own = {name for which, belonging in known.items() for name in belonging.get(str(settings[which]), ())}
    others = {name for belonging in known.values() for names in belonging.values() for name in names} - own
    return others if settings["jepa"] else others | set(OF_JEPA)


def _check_tokenizer(settings: OfTokens, network: str) -> None:
    """What both know of a tokenizer; its channels are set to the usual ones if none are given."""
    seen_of(settings.holdout)
    if settings.stride not in STAGES:
        raise ValueError(f"stride must be one of {', '.join(map(str, STAGES))}, not {settings.stride}")
    if settings.channels is None:
        object.__setattr__(settings, "channels", USUAL_CHANNELS.get(network, 1))
