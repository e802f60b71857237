"""Names of other frameworks' optimizers, schedules, metrics, modules and the like, with hints.

Those of layers are at the registration of operators, and in `operator/foreign_names.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from mxrun.base.near_names import folded


def hint_for(kind: str, name: str) -> str:
    """Return the hint for a name of another framework for an entry of one kind; else empty.

    kind: that of a registry, such as optimizer, or `module` for attributes of `mxrun` itself.
    """
    if kind == "data set" and _FILE.search(name):
        return f"write dataset: FORMAT, such as csv or image_folder, and path: {name}"
    return _HINTS.get(kind, {}).get(folded(name), "")


def keys_for(word: str) -> tuple[str, ...]:
    """Return the keys of a config that do what a word of another framework says; else empty."""
    return KEYS.get(folded(word), ())


def place_of(word: str) -> str:
    """Return where a config has what a word means that is no key of its sections; else empty."""
    return _PLACES.get(folded(word), "")


def choice_hint(word: str, choices: Collection[str]) -> str:
    """Return the hint for what another framework writes in place of one of `choices`, or for an
    activation that is a layer of its own; else empty.
    """
    ours = _CHOICES.get(folded(word), "")
    if ours in choices:
        return f"mxrun calls it {ours}"
    layer = _ACTIVATIONS.get(folded(word), "")
    return f"a layer of its own: {layer}" if layer and "softrelu" in choices else ""


def _keys(key: str, *words: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(words, (key,))


def _csv(key: str, *words: str) -> dict[str, tuple[str, ...]]:
    """Return a key of tables by the words that pandas and scikit-learn have for it."""
    return dict.fromkeys(words, (key, f"data.train.dataset.csv.{key}"))


# By folded word.
KEYS: Mapping[str, tuple[str, ...]] = {
    **_keys("lr", "learningrate", "baselr", "initiallr", "stepsize"),
    **_keys("factor", "gamma", "decayrate"),
    **_keys("wd", "weightdecay", "l2", "regularization", "regularisation", "regularizer"),
    **_keys("train.schedule", "scheduler", "lrscheduler", "learningrateschedule", "decay"),
    **_keys("train.schedule.plateau", "reducelronplateau"),
    **_keys("warmup_steps", "warmup"),
    **_keys("data.train.transforms", "augmentation", "augmentations", "augment", "preprocessing"),
    **_keys("data.train.transforms", "dataaugmentation"),
    **_keys("data.eval", "validation", "valdata", "validationdata", "evaldataset", "testdata"),
    **_keys("data.eval", "val", "valid", "test"),
    **_keys("data.train.split.share", "validationsplit", "trainsize", "testsize", "holdout"),
    **_keys("data.train.split.share", "valsplit", "validationfraction"),
    **_keys("data.workers", "numworkers", "dataloader", "loader"),
    **_keys("data.last_batch", "droplast", "dropremainder"),
    **_keys("train.checkpoint", "save", "savestrategy", "savesteps", "modelcheckpoint", "saver"),
    **_keys("train.checkpoint.best", "savebest", "bestmodel", "monitor"),
    **_keys("train.checkpoint.best", "savebestonly", "loadbestmodelatend", "restorebestweights"),
    **_keys("train.early_stopping", "stop", "stopping", "earlystop", "callback", "callbacks"),
    **_keys("train.start_from", "pretrained", "finetune", "finetuning", "transferlearning"),
    **_keys("train.accumulate", "gradientaccumulation", "gradientaccumulationsteps", "gradacc"),
    **_keys("clip_global_norm", "clipnorm", "clipgradnorm", "maxgradnorm", "gradientclipping"),
    **_keys("clip_global_norm", "clipgrad", "gradclip", "gradientclip", "gradientclipval"),
    **_keys("train.average", "ema", "movingaverage", "swa", "averagedmodel"),
    **_keys("train.initializer", "kernelinitializer", "weightinit", "initialization"),
    **_keys("train.class_weights", "classweight", "posweight", "imbalance", "imbalanced"),
    **_keys("train.log_every", "loggingsteps", "logeverynsteps", "loginterval", "verbose"),
    **_keys("train.max_steps", "iterations", "maxiter", "numsteps", "stepsperepoch"),
    **_keys("train.epochs", "numtrainepochs", "maxepochs", "nepochs", "numepochs", "numepoch"),
    **_keys("network.variables.NAME.frozen", "freeze", "trainable", "requiresgrad"),
    **_keys("network.inputs", "inputshape"),
    **_keys("precision", "half", "fp16", "float16", "amp", "autocast", "mixedprecision", "bf16"),
    **_keys("context", "device", "gpu", "cuda", "accelerator", "ctx"),
    **_keys("context", "gpus", "devices", "numgpus", "ngpus"),
    **_keys("seed", "randomstate", "manualseed", "randomseed"),
    **_keys("memory.budget", "checkpointing", "gradientcheckpointing", "recompute"),
    **_keys("network.layers.recurrent", "cell", "customcell", "owncell", "timestep", "foreach"),
    **_keys("network.layers.recurrent", "whileloop", "timedistributed"),
    **dict.fromkeys(
        ("stateful", "bptt", "tbptt", "hiddenstate", "hiddenstates", "carriedstates"),
        ("network.layers.RNN.initial_state", "network.layers.recurrent.memories.NAME.carry"),
    ),
    **_keys("network.layers.RNN.state_size", "hiddensize"),
    **_keys("network.layers.RNN.layout", "batchfirst"),
    **_keys("network.layers.scaled_dot_product_attention", "selfattention", "sdpa", "mha"),
    **_keys("network.layers.scaled_dot_product_attention.causal", "iscausal", "causalmask"),
    **_keys("network.layers.position_embedding", "positionalencoding"),
    **_keys("data.train.dataset.text", "languagemodel", "languagemodeling", "corpus", "charrnn"),
    **_keys("data.train.dataset.text.length", "seqlen", "blocksize", "contextlength"),
    **_keys("data.train.dataset.text_lines", "textclassification", "sentiment", "sentences"),
    **_csv("delimiter", "sep", "delimwhitespace"),
    **_csv("data", "usecols", "features", "featurenames"),
    **_csv("label", "target", "targetcolumn", "labelcolumn", "ycol", "labels"),
    **_csv("header", "names", "hasheader", "skiprows"),
    **_csv("missing", "navalues", "keepdefaultna", "missingvalues", "nullvalues", "nastring"),
    **_csv("missing", "strategy", "fillvalue", "fillna", "impute"),
    **_csv("columns", "dtype", "dtypes", "converters", "indexcol", "columntransformer"),
    **_csv("columns", "featuretypes", "parsedates", "dayfirst", "dateformat", "categorical"),
    **_csv("columns", "standardscaler", "minmaxscaler", "robustscaler", "simpleimputer"),
    **_csv("columns", "onehotencoder", "ordinalencoder", "tfidfvectorizer", "countvectorizer"),
    **_csv("classes", "labelencoder", "classnames", "targetnames", "labelmap"),
    **_csv("separator", "multilabelbinarizer"),
    **_csv("encoding", "encodingerrors", "charset"),
    **_csv("decimal", "decimalpoint"),
    **_csv("thousands", "thousandssep", "thousandsseparator"),
    **_csv("percent", "percentage"),
    **_csv("units", "currency", "unit"),
}


_CARDS = "`context: gpu` is an NVIDIA card; the context cpu, the default, uses all cores"
# By folded word, choices of keys and parameters.
_CHOICES: Mapping[str, str] = {
    **dict.fromkeys(("bf16", "mixed", "mixedbfloat16"), "bfloat16"),
    **dict.fromkeys(("fp32", "float", "full"), "float32"),
    **dict.fromkeys(("average", "mean"), "avg"),
    "maximum": "max",
    "softplus": "softrelu",
}
# By folded name, the layers that are activations, besides those of Activation.
_ACTIVATIONS: Mapping[str, str] = {
    **{each: f"LeakyReLU: {{act_type: {each}}}" for each in ("elu", "prelu", "selu")},
    **dict.fromkeys(("leakyrelu", "leaky"), "LeakyReLU: {slope: 0.01}"),
    **dict.fromkeys(("silu", "swish"), "silu"),
    "gelu": "gelu",
    **dict.fromkeys(("softmax", "logsoftmax"), "SoftmaxOutput: {label: label}, softmax and loss"),
}
# Name with a folder or an ending.
_FILE = re.compile(r"[/\\]|\.\w+$")
# By folded word, where a config has what is no key of its sections.
_PLACES: Mapping[str, str] = {
    **dict.fromkeys(("gpu", "gpus", "cuda", "ngpus", "numgpus"), _CARDS),
    **dict.fromkeys(
        ("lr", "learningrate", "baselr"),
        "lr is a parameter of the optimizer: train.optimizer: {sgd: {lr: 0.1}}",
    ),
    **dict.fromkeys(
        ("wd", "weightdecay", "l2"),
        "wd is a parameter of the optimizer: train.optimizer: {sgd: {lr: 0.1, wd: 1e-4}}",
    ),
    "nesterov": "an optimizer: train.optimizer: {nag: {lr: 0.1, momentum: 0.9}}",
    "momentum": "a parameter of the optimizer: train.optimizer: {sgd: {lr: 0.1, momentum: 0.9}}",
    **dict.fromkeys(
        ("clipgrad", "gradclip", "clipnorm", "clipgradnorm", "maxgradnorm", "gradientclipval"),
        "clip_global_norm is a parameter of the optimizer: "
        "train.optimizer: {sgd: {lr: 0.1, clip_global_norm: 1}}",
    ),
    **dict.fromkeys(
        ("warmup", "warmupsteps"),
        "a parameter of the schedule: train.schedule: {cosine: {warmup_steps: 500}}",
    ),
    **dict.fromkeys(
        ("loss", "criterion", "lossfunction", "lossfn", "objective"),
        "the loss is the network's last layer, such as SoftmaxOutput: {label: label}",
    ),
}


def _written(form: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, f"mxrun calls it {form}")


def _lacking(feature: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, f"mxrun has no {feature} yet")


_MODEL = "mxrun.load(CONFIG) gives a model"
# By kind of registry, then by folded name.
_HINTS: Mapping[str, Mapping[str, str]] = {
    "optimizer": {
        **_lacking(
            "such optimizer",
            *("adadelta", "adamax", "nadam", "radam", "amsgrad", "lbfgs", "rprop", "asgd"),
            *("adafactor", "lion", "sparseadam", "lars", "ftml", "sgld", "dcasgd"),
        ),
    },
    "schedule": {
        **_lacking("such schedule", "lambdalr"),
    },
    "initializer": {
        **_lacking("such initializer", "orthogonal", "bilinear", "lecunnormal", "lecununiform"),
    },
    "metric": {
        "loss": "the loss is always measured: leave it out",
        **_lacking("such metric", "averageprecision", "mape", "cohenkappa"),
    },
    "transform": {
        **dict.fromkeys(
            ("totensor", "pil", "toimage", "todtype", "rescaling", "rescale"),
            "images are read as numbers from 0 to 1 in any case: leave it out",
        ),
        **_lacking(
            "such transform",
            *("randomverticalflip", "verticalflip"),
            *("gaussianblur", "cutmix", "autoaugment", "randaugment"),
        ),
    },
    "baseline": {
        **_written("torch", "pytorch"),
        **_written("onnxruntime", "onnx", "ort"),
        **_lacking("such baseline", "tensorflow", "keras", "jax", "tvm"),
    },
    "device": dict.fromkeys(
        ("cuda", "mps", "metal", "rocm", "hip", "xpu", "tpu", "npu", "hpu"), _CARDS
    ),
    "module": {
        **dict.fromkeys(("gpu", "cuda", "numgpus", "gpumemoryinfo", "device"), _CARDS),
        **dict.fromkeys(
            ("mod", "module", "model", "feedforward", "bucketingmodule"),
            f"{_MODEL} with fit, evaluate and predict; symbols have simple_bind for own loops",
        ),
        **dict.fromkeys(
            ("fit", "train", "trainer", "evaluate", "eval", "predict", "infer", "save", "check"),
            f"{_MODEL} with fit, evaluate, predict, check and save",
        ),
        **dict.fromkeys(
            ("gluon", "nn", "layers", "keras", "sequential", "linear", "dense", "functional"),
            "layers are written in a config's network section, which mxrun.load opens; mxrun.nd "
            "has operators on arrays",
        ),
        **dict.fromkeys(
            ("io", "recordio", "image", "img", "data", "datasets", "dataloader", "dataset"),
            "records are read as a config's data section says (`mxrun docs data`); a model's "
            "evaluate and predict take arrays, too",
        ),
        **dict.fromkeys(
            ("metric", "metrics"), "train.metrics in a config; a model's evaluate measures them"
        ),
        **dict.fromkeys(("init", "initializer"), "train.initializer in a config"),
        **dict.fromkeys(("lrscheduler", "scheduler"), "train.schedule in a config"),
        **dict.fromkeys(
            ("callback", "callbacks", "monitor", "mon"), "a model's fit takes functions: callbacks"
        ),
        **dict.fromkeys(
            ("viz", "visualization", "plotnetwork"), "`mxrun plot CONFIG` draws a network"
        ),
        **dict.fromkeys(("rnn", "lstm", "gru"), "the operator RNN, or `recurrent:` in a config"),
        **dict.fromkeys(
            ("np", "npx", "numpy", "array", "zeros", "ones", "tensor", "arange", "ndarray"),
            "arrays and operators on them are in mxrun.nd",
        ),
        **dict.fromkeys(("optim", "optimizers"), "mxrun.optimizer"),
        **dict.fromkeys(
            ("nograd", "grad", "backward"), "mxrun.autograd has record, pause and grad"
        ),
        **dict.fromkeys(("profiler",), "`mxrun train CONFIG --profile`, or fit(profile=True)"),
        **dict.fromkeys(("attrscope", "name", "attribute"), "mxrun.sym has AttrScope and Prefix"),
        **dict.fromkeys(("operator", "customop"), "`mxrun docs operators`: plugins of a config"),
        **dict.fromkeys(("waitall", "engine"), "mxrun.nd.waitall()"),
    },
    "data set": {
        **_lacking(
            "such data set",
            *("imagenet", "kmnist", "svhn", "coco", "hdf5", "tfrecord"),
        ),
    },
}
