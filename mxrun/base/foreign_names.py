"""Names of other frameworks' optimizers, schedules, metrics and the like, with hints for each.

Those of layers are in `operator/foreign_names.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from mxrun.base.near_names import folded


def hint_for(kind: str, name: str) -> str:
    """Return the hint for a name of another framework for an entry of one kind; else empty.

    kind: that of a registry, such as optimizer.
    """
    return _HINTS.get(kind, {}).get(folded(name), "")


def keys_for(word: str) -> tuple[str, ...]:
    """Return the keys of a config that do what a word of another framework says; else empty."""
    return KEYS.get(folded(word), ())


def _keys(key: str, *words: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(words, (key,))


# By folded word.
KEYS: Mapping[str, tuple[str, ...]] = {
    **_keys("lr", "learningrate", "baselr", "initiallr", "stepsize"),
    **_keys("wd", "weightdecay", "l2", "regularization", "regularisation", "regularizer"),
    **_keys("train.schedule", "scheduler", "lrscheduler", "learningrateschedule", "decay"),
    **_keys("train.schedule.plateau", "reducelronplateau"),
    **_keys("warmup_steps", "warmup"),
    **_keys("data.train.transforms", "augmentation", "augmentations", "augment", "preprocessing"),
    **_keys("data.train.transforms", "dataaugmentation"),
    **_keys("data.eval", "validation", "valdata", "validationdata", "evaldataset", "testdata"),
    **_keys("data.train.split.share", "validationsplit", "trainsize", "testsize", "holdout"),
    **_keys("data.workers", "numworkers", "dataloader", "loader"),
    **_keys("data.last_batch", "droplast", "dropremainder"),
    **_keys("train.checkpoint", "save", "savestrategy", "savesteps", "modelcheckpoint", "saver"),
    **_keys("train.checkpoint.best", "savebestonly", "loadbestmodelatend", "restorebestweights"),
    **_keys("train.early_stopping", "stop", "stopping", "earlystop", "callback", "callbacks"),
    **_keys("train.start_from", "pretrained", "finetune", "finetuning", "transferlearning"),
    **_keys("train.accumulate", "gradientaccumulation", "gradientaccumulationsteps", "gradacc"),
    **_keys("clip_global_norm", "clipnorm", "clipgradnorm", "maxgradnorm", "gradientclipping"),
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
}


def _written(form: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, f"mxrun calls it {form}")


def _lacking(feature: str, *names: str) -> dict[str, str]:
    return dict.fromkeys(names, f"mxrun has no {feature} yet")


# By kind of registry, then by folded name.
_HINTS: Mapping[str, Mapping[str, str]] = {
    "optimizer": {
        **_written("sgd: {momentum: 0.9}", "momentum", "sgdmomentum", "momentumsgd"),
        **_written("nag: {momentum: 0.9}", "nesterov", "nesterovmomentum"),
        **_written("rmsprop: {centered: true}", "rmspropalex"),
        **_written("signum: {momentum: 0}", "signsgd"),
        **_lacking(
            "such optimizer",
            *("adadelta", "adamax", "nadam", "radam", "amsgrad", "lbfgs", "rprop", "asgd"),
            *("adafactor", "lion", "sparseadam", "lars", "ftml", "sgld", "dcasgd"),
        ),
    },
    "schedule": {
        **_written("step: {epochs: 10, factor: 0.1}", "steplr", "factorscheduler", "stepdecay"),
        **_written("multistep: {epochs: [10, 20], factor: 0.1}", "multisteplr"),
        **_written(
            "multistep: {epochs: [10, 20], factor: 0.1}",
            "multifactorscheduler",
            "piecewiseconstantdecay",
        ),
        **_written("exponential: {factor: 0.95}", "exponentiallr", "exponentialdecay"),
        **_written(
            "cosine", "cosineannealinglr", "cosineannealing", "cosinedecay", "cosinescheduler"
        ),
        **_written("linear", "linearlr", "lineardecay"),
        **_written("polynomial", "polynomiallr", "polynomialdecay", "polyscheduler"),
        **_written("one_cycle: {peak: 0.1}", "onecyclelr"),
        **_written("plateau", "reducelronplateau"),
        **_written("constant", "constantlr", "none", "fixed"),
        **_written("{constant: {warmup_steps: 500}}, as every schedule has", "warmup"),
        **_lacking(
            "such schedule",
            *("cosineannealingwarmrestarts", "cosinedecayrestarts", "cycliclr", "lambdalr"),
        ),
    },
    "initializer": {
        **_written(
            "xavier", "xavieruniform", "glorot", "glorotuniform", "xaviernormal", "glorotnormal"
        ),
        **_written(
            "msra", "kaiming", "kaimingnormal", "kaiminguniform", "he", "henormal", "heuniform"
        ),
        **_written("msra", "msraprelu"),
        **_written("normal", "randomnormal", "gaussian", "truncatednormal"),
        **_written("uniform", "randomuniform"),
        **_written("constant: {value: 0}", "zero", "zeros"),
        **_written("constant: {value: 1}", "one", "ones"),
        **_lacking("such initializer", "orthogonal", "bilinear", "lecunnormal", "lecununiform"),
    },
    "metric": {
        **_written(
            "accuracy",
            *("acc", "categoricalaccuracy", "sparsecategoricalaccuracy", "multiclassaccuracy"),
        ),
        **_written(
            "{top_k: {k: 5}}",
            *("top5", "top5accuracy", "topkaccuracy", "topkcategoricalaccuracy"),
            "sparsetopkcategoricalaccuracy",
        ),
        **_written("auc", "auroc", "rocauc", "rocaucscore"),
        **_written("f1", "f1score", "binaryf1score", "multiclassf1score"),
        **_written("fbeta", "fbetascore"),
        **_written("mcc", "matthewscorrcoef", "matthews", "pcc"),
        **_written("mse", "meansquarederror", "l2"),
        **_written("mae", "meanabsoluteerror", "l1"),
        **_written("rmse", "rootmeansquarederror"),
        **_written("r2", "r2score", "rsquared"),
        **_written("pearson_correlation", "pearsonr", "pearsoncorrcoef", "pearson"),
        **_written(
            "cross_entropy",
            *("crossentropyloss", "categoricalcrossentropy", "sparsecategoricalcrossentropy"),
            *("logloss", "nll", "negativeloglikelihood", "ce"),
        ),
        **_written("confusion_matrix", "confusion", "multiclassconfusionmatrix"),
        "loss": "the loss is always measured: leave it out",
        **_lacking(
            "such metric", "meaniou", "iou", "dice", "averageprecision", "mape", "cohenkappa"
        ),
    },
    "transform": {
        **_written(
            "flip", "randomhorizontalflip", "randomflip", "horizontalflip", "randomleftright"
        ),
        **_written("random_crop: {size: [24, 24]}", "crop"),
        **_written(
            "{pad_crop: {pad: 4}}, which pads and then crops at random", "pad", "zeropadding2d"
        ),
        **_written("{resize: {size: [32, 32]}}", "resizing", "scale"),
        **_written("{normalize: {mean: 0.5, std: 0.25}}", "standardize", "normalization"),
        **_written("color_jitter", "randombrightness", "randomcontrast", "randomsaturation"),
        **_written("{cutout: {size: 8}}", "randomerasing", "randomcutout"),
        **_written("{one_hot: {classes: 10}}", "tocategorical", "categoryencoding"),
        **_written("{rotation: {degrees: 15}}", "randomrotation", "rotate"),
        **_written("{affine: {degrees: 10, translate: 0.1}}", "randomaffine"),
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
    "data set": {
        **_written("image_folder", "images", "imagedirectory", "folder"),
        **_written("csv", "table", "tsv", "dataframe"),
        **_written("npz", "numpy", "arrays", "tensordataset"),
        **_lacking(
            "such data set",
            *("imagenet", "kmnist", "svhn", "coco", "hdf5", "tfrecord"),
        ),
    },
}
