"""Data sets whose files are published on the internet: addresses, sizes, digests, licences.

Sources of the digests and sizes: the checksum lists of TensorFlow Datasets
(github.com/tensorflow/datasets, tensorflow_datasets/url_checksums/mnist.txt, fashion_mnist.txt,
cifar10.txt, cifar100.txt, tiny_shakespeare.txt). The authors of Fashion-MNIST (its README) and of
CIFAR (www.cs.toronto.edu/~kriz/cifar.html) publish MD5 digests of the same files.
"""

from __future__ import annotations

from collections.abc import Mapping

from mxrun.base.dataclass import dataclass

_CHECKSUMS = "TensorFlow Datasets, tensorflow_datasets/url_checksums"


@dataclass(frozen=True)
class ArchiveMember:
    """File that an archive holds: its path there, and its size in bytes; None for a short text."""

    path: str
    size: int | None = None

    @property
    def name(self) -> str:
        """Name of the file without its folder."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class PublishedFile:
    """File to fetch: its name, the folders of its addresses in order of preference, its digest.

    size: in bytes. content_sha256: the digest of what a compressed file holds, by which a copy that
    was compressed anew is recognised; empty if that is not known. members: the files to take out
    of an archive; empty for a file that is used as it is.
    """

    name: str
    mirrors: tuple[str, ...]
    size: int
    sha256: str
    content_sha256: str = ""
    members: tuple[ArchiveMember, ...] = ()


@dataclass(frozen=True)
class PublishedDataset:
    """Files of a data set and what must be known to use them.

    homepage: the authors' page. digests: where the digests come from. example: a bundled config
    that trains on it, if there is one; example_file: the file in the folder that it reads, if it is
    not given the folder.
    """

    name: str
    title: str
    files: tuple[PublishedFile, ...]
    homepage: str
    licence: str
    digests: str
    example: str = ""
    example_file: str = ""

    @property
    def size(self) -> int:
        """Bytes of all files as they are transferred."""
        return sum(file.size for file in self.files)


def _idx(
    mirrors: tuple[str, ...], rows: tuple[tuple[str, int, str, str], ...]
) -> tuple[PublishedFile, ...]:
    """Return the four files of MNIST's form: name without `-ubyte.gz`, size, digests."""
    return tuple(
        PublishedFile(f"{name}-ubyte.gz", mirrors, size, sha256, content)
        for name, size, sha256, content in rows
    )


_MNIST = _idx(
    (
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
    (
        (
            "train-images-idx3",
            9912422,
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        ),
        (
            "train-labels-idx1",
            28881,
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        ),
        (
            "t10k-images-idx3",
            1648877,
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        ),
        (
            "t10k-labels-idx1",
            4542,
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
    ),
)
_FASHION_MNIST = _idx(
    ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
    (
        (
            "train-images-idx3",
            26421880,
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "",
        ),
        (
            "train-labels-idx1",
            29515,
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "",
        ),
        (
            "t10k-images-idx3",
            4422102,
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "",
        ),
        (
            "t10k-labels-idx1",
            5148,
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
            "",
        ),
    ),
)
_TORONTO = ("https://www.cs.toronto.edu/~kriz/",)
# 10,000 records of a label and 3,072 bytes; those of CIFAR-100 have two labels.
_CIFAR10_BATCH, _CIFAR100_RECORD = 10_000 * 3073, 3074
_CIFAR10 = PublishedFile(
    "cifar-10-binary.tar.gz",
    _TORONTO,
    170052171,
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    members=tuple(
        ArchiveMember(f"cifar-10-batches-bin/{name}.bin", _CIFAR10_BATCH)
        for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
    ),
)
_CIFAR100 = PublishedFile(
    "cifar-100-binary.tar.gz",
    _TORONTO,
    168513733,
    "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    members=(
        ArchiveMember("cifar-100-binary/train.bin", 50_000 * _CIFAR100_RECORD),
        ArchiveMember("cifar-100-binary/test.bin", 10_000 * _CIFAR100_RECORD),
        ArchiveMember("cifar-100-binary/fine_label_names.txt"),
        ArchiveMember("cifar-100-binary/coarse_label_names.txt"),
    ),
)
_TINY_SHAKESPEARE = PublishedFile(
    "input.txt",
    ("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/",),
    1115394,
    "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
)

PUBLISHED: Mapping[str, PublishedDataset] = {
    each.name: each
    for each in (
        PublishedDataset(
            "mnist",
            "MNIST: 70,000 handwritten digits of 28x28 pixels",
            _MNIST,
            "http://yann.lecun.com/exdb/mnist/",
            licence="CC BY-SA 3.0 (Y. LeCun, C. Cortes, C. Burges)",
            digests=f"{_CHECKSUMS}/mnist.txt",
            example="lenet_mnist",
        ),
        PublishedDataset(
            "fashion_mnist",
            "Fashion-MNIST: 70,000 pictures of clothes, 28x28 grey pixels",
            _FASHION_MNIST,
            "https://github.com/zalandoresearch/fashion-mnist",
            licence="MIT (Zalando SE)",
            digests=f"{_CHECKSUMS}/fashion_mnist.txt",
        ),
        PublishedDataset(
            "cifar10",
            "CIFAR-10: 60,000 colour pictures of 32x32 pixels in 10 classes",
            (_CIFAR10,),
            "https://www.cs.toronto.edu/~kriz/cifar.html",
            licence="none stated; the authors ask to cite A. Krizhevsky, Learning Multiple Layers "
            "of Features from Tiny Images, 2009",
            digests=f"{_CHECKSUMS}/cifar10.txt",
            example="resnet20_cifar10",
        ),
        PublishedDataset(
            "cifar100",
            "CIFAR-100: 60,000 colour pictures of 32x32 pixels in 100 classes",
            (_CIFAR100,),
            "https://www.cs.toronto.edu/~kriz/cifar.html",
            licence="none stated; the authors ask to cite A. Krizhevsky, Learning Multiple Layers "
            "of Features from Tiny Images, 2009",
            digests=f"{_CHECKSUMS}/cifar100.txt",
        ),
        PublishedDataset(
            "tiny_shakespeare",
            "Tiny Shakespeare: 1.1 MB of plays by Shakespeare",
            (_TINY_SHAKESPEARE,),
            "https://github.com/karpathy/char-rnn",
            licence="public domain (W. Shakespeare)",
            digests=f"{_CHECKSUMS}/tiny_shakespeare.txt",
            example="gpt_shakespeare",
            example_file="input.txt",
        ),
    )
}
"""Data sets that `mxrun datasets fetch` knows, by the names under which configs read them."""
