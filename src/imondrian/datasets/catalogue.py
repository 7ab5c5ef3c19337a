"""The catalogue of the data sets of the paper and of our documentation: size, source, labels and checksum of each."""

from dataclasses import dataclass

MIXED, CLUSTERED, FIRST, LAST = "mixed", "clustered", "anomalies first", "anomalies last"
ORDERS = (MIXED, CLUSTERED, FIRST, LAST)

COLLECTIONS = {
    "ODDS": (
        "No licence is named; ODDS asks for a citation: S. Rayana, ODDS Library, Stony Brook University, 2016, "
        "http://odds.cs.stonybrook.edu. Most of the underlying data are from the UCI Machine Learning Repository, "
        "which lists its donated sets under CC BY 4.0; cite the donors as well."
    ),
    "UCI": (
        "CC BY 4.0. W. Wolberg, O. Mangasarian, N. Street, W. Street, Breast Cancer Wisconsin (Diagnostic), UCI "
        "Machine Learning Repository, 1995, https://doi.org/10.24432/C5DW2B."
    ),
    "ADBench": (
        "S. Han, X. Hu, H. Huang, M. Jiang, Y. Zhao, ADBench: Anomaly Detection Benchmark, NeurIPS 2022; cite the "
        "donors of the underlying data as well."
    ),
    "NAB": (
        "MIT. S. Ahmad, A. Lavin, S. Purdy, Z. Agha, Unsupervised real-time anomaly detection for streaming data, "
        "Neurocomputing 262, 2017."
    ),
    "CIC": (
        "Free for research with a citation: I. Sharafaldin, A. Habibi Lashkari, A. Ghorbani, Toward Generating a New "
        "Intrusion Detection Dataset and Intrusion Traffic Characterization, ICISSP 2018."
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """The description of a data set.

    Attributes
    ----------
    name, title : str
        The name to load it by, and a readable title.
    n_rows, n_features, n_anomalies : int
        Number of rows, features and anomalies.
    anomalies : str
        Which rows are the anomalies.
    order : str
        Order of the rows in the file: "mixed", "clustered" (anomalies are adjacent much more often than by chance),
        "anomalies first" or "anomalies last".
    file : str
        Its file in a data folder, without the extension .npz, .mat or .csv.
    label : str, default="y"
        The array or column that holds the labels.
    original : str or None
        The file as first published, in a data folder, if it needs its own reader.
    original_reader : str
        The module that reads the original file.
    is_bundled : bool
        Whether it is part of scikit-learn.
    collection : str
        Who publishes it; a key of `COLLECTIONS`.
    page : str
        The web page that describes it, to download it by hand.
    urls : tuple of str
        URLs to download it from, in the order in which to try them.
    checksum : str or None
        SHA-256 of the content (see `imondrian.datasets.checksum`); None if it is not known.
    groups : tuple of str
        "paper", "streams", "adbench", or empty.
    same_as : str or None
        The name of another entry with the same rows and labels, perhaps with other columns or scaling: count only one
        of the two in a mean.
    shares_rows_with : tuple of str
        Other entries made from the same rows, but with other labels, a selection of rows or another scale. Entries with
        the same rows and labels are not listed here; see `same_as`.
    """

    name: str
    title: str
    n_rows: int
    n_features: int
    n_anomalies: int
    anomalies: str
    order: str
    file: str
    label: str = "y"
    original: str | None = None
    original_reader: str = ""
    is_bundled: bool = False
    collection: str
    page: str
    urls: tuple[str, ...] = ()
    checksum: str | None
    groups: tuple[str, ...] = ()
    same_as: str | None = None
    shares_rows_with: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self.n_rows, self.n_features

    @property
    def anomaly_share(self) -> float:
        """The proportion of anomalies among the rows."""
        return self.n_anomalies / self.n_rows

    @property
    def order_reveals_labels(self) -> bool:
        """Whether earlier rows predict the next label: shuffle before streaming, unless rows are in order of time."""
        return self.order != MIXED

    @property
    def citation(self) -> str:
        """Licence and citation."""
        return COLLECTIONS[self.collection]


_ODDS_PAGE = "http://odds.cs.stonybrook.edu/"
_ODDS = "https://www.dropbox.com/s/"  # linked from the ODDS pages
_ADBENCH_PAGE = "https://github.com/Minqi824/ADBench"
_ADBENCH = "https://raw.githubusercontent.com/Minqi824/ADBench/main/adbench/datasets/Classical/"
_CIC_PAGE = "https://www.unb.ca/cic/datasets/ids-2017.html"

_PAPER = (
    Entry(
        name="wbc",
        title="Breast Cancer Wisconsin (Diagnostic), complete; the paper's WBC (the paper gives 37 % anomalies)",
        n_rows=569,
        n_features=30,
        n_anomalies=212,
        anomalies="malignant tumours",
        order=MIXED,
        file="wdbc",
        is_bundled=True,
        collection="UCI",
        page="https://archive.ics.uci.edu/dataset/17/breast+cancer+wisconsin+diagnostic",
        checksum="47bfcdd125a851e953abde484346254d8be95d3d9cf13108f45734f1d7ee4de8",
        groups=("paper",),
        shares_rows_with=("odds-wbc", "adbench-wdbc"),
    ),
    Entry(
        name="pima",
        title="Pima Indians Diabetes",
        n_rows=768,
        n_features=8,
        n_anomalies=268,
        anomalies="tested positive for diabetes",
        order=MIXED,
        file="pima",
        collection="ODDS",
        page=_ODDS_PAGE + "pima-indians-diabetes-dataset/",
        urls=(_ODDS + "mvlwu7p0nyk2a2r/pima.mat?dl=1", _ADBENCH + "29_Pima.npz"),
        checksum="67dd057354963a1b1f93813401b1e8a901ab7b679f929ed749d417695dc459aa",
        groups=("paper",),
    ),
    Entry(
        name="thyroid",
        title="Thyroid Disease, training set",
        n_rows=3772,
        n_features=6,
        n_anomalies=93,
        anomalies="hyperfunction; subnormal function counts as normal",
        order=MIXED,
        file="thyroid",
        collection="ODDS",
        page=_ODDS_PAGE + "thyroid-disease-dataset/",
        urls=(_ODDS + "bih0e15a0fukftb/thyroid.mat?dl=1", _ADBENCH + "38_thyroid.npz"),
        checksum="1513a65ddb7e70db1a70b6c5c23770a8c2384fefba1e5830043446099ef5ffb5",
        groups=("paper",),
        shares_rows_with=("annthyroid", "adbench-annthyroid"),
    ),
    Entry(
        name="satellite",
        title="Statlog Landsat Satellite",
        n_rows=6435,
        n_features=36,
        n_anomalies=2036,
        anomalies="the three smallest classes: 2, 4 and 5",
        order=CLUSTERED,
        file="satellite",
        collection="ODDS",
        page=_ODDS_PAGE + "satellite-dataset/",
        urls=(_ODDS + "dpzxp8jyr9h93k5/satellite.mat?dl=1", _ADBENCH + "30_satellite.npz"),
        checksum="269ba53948947ed5c1f076a23f7aaa5c42c552c58879cdfa1ffbd5b716461b7d",
        groups=("paper",),
        shares_rows_with=("adbench-landsat", "adbench-satimage-2"),
    ),
    Entry(
        name="optdigits",
        title="Optical Recognition of Handwritten Digits",
        n_rows=5216,
        n_features=64,
        n_anomalies=150,
        anomalies="the digit 0, reduced to 150 rows",
        order=LAST,
        file="optdigits",
        collection="ODDS",
        page=_ODDS_PAGE + "optdigits-dataset/",
        urls=(_ODDS + "w52ndgz5k75s514/optdigits.mat?dl=1", _ADBENCH + "26_optdigits.npz"),
        checksum="1648d8fc436426dece48bdc1610b72fe882686b88fbd8d4917c302c4f2206d90",
        groups=("paper",),
    ),
    Entry(
        name="ionosphere",
        title="Ionosphere, without its constant column",
        n_rows=351,
        n_features=33,
        n_anomalies=126,
        anomalies='"bad" radar returns',
        order=MIXED,
        file="ionosphere",
        collection="ODDS",
        page=_ODDS_PAGE + "ionosphere-dataset/",
        urls=(_ODDS + "lpn4z73fico4uup/ionosphere.mat?dl=1",),
        checksum="a85b981721c89a3882148d9e699f9c7dac3f10d51aa5a9718a1c73268c2d202e",
        groups=("paper",),
    ),
    Entry(
        name="wine",
        title="Wine",
        n_rows=129,
        n_features=13,
        n_anomalies=10,
        anomalies="class 1, reduced to 10 rows",
        order=FIRST,
        file="wine",
        collection="ODDS",
        page=_ODDS_PAGE + "wine-dataset/",
        urls=(_ODDS + "uvjaudt2uto7zal/wine.mat?dl=1", _ADBENCH + "45_wine.npz"),
        checksum="ca4576197b0cb4f4fd2193f875b26d1381fba33194bfc275086431445730e852",
        groups=("paper",),
    ),
    Entry(
        name="smtp",
        title="KDD Cup 1999, SMTP: duration, bytes sent and received as log(x + 0.1)",
        n_rows=95156,
        n_features=3,
        n_anomalies=30,
        anomalies="attacks",
        order=MIXED,
        file="smtp",
        collection="ODDS",
        page=_ODDS_PAGE + "smtp-kddcup99-dataset/",
        urls=(_ADBENCH + "34_smtp.npz",),  # the .mat of ODDS is HDF5
        checksum="543705c2261949229572228f7b68086df8a37c1e60abfc92816d340e6a875629",
        groups=("paper", "streams"),
    ),
    Entry(
        name="cicids",
        title="CICIDS 2017 (MachineLearningCSV), Wednesday, without the port and rows with missing or infinite values",
        n_rows=691406,
        n_features=77,
        n_anomalies=251723,
        anomalies="attacks: DoS Hulk, GoldenEye, slowloris and Slowhttptest, and Heartbleed",
        order=CLUSTERED,
        file="cicids-wednesday",
        original="Wednesday-workingHours.pcap_ISCX.csv",
        original_reader="cicids",
        collection="CIC",
        page=_CIC_PAGE,
        checksum=None,
        groups=("paper",),
    ),
)

_WITHOUT_GROUP = (
    Entry(
        name="cicids-sample",
        title="CICIDS 2017, 10,203 flows; a stand-in for the paper's ninth set, not its rows",
        n_rows=10203,
        n_features=77,
        n_anomalies=1757,
        anomalies="attacks: DoS and Heartbleed",
        order=MIXED,
        file="cicids",
        collection="CIC",
        page=_CIC_PAGE,
        checksum="2aadb713eab96e1c164fa07b700a4c2a1b703fe340e221eb7b29eb1e6ddf64b5",
    ),
    Entry(
        name="odds-wbc",
        title="Breast Cancer Wisconsin (Diagnostic) as published by ODDS: scaled to [0, 1], few malignant tumours",
        n_rows=378,
        n_features=30,
        n_anomalies=21,
        anomalies="malignant tumours, reduced to 21 rows",
        order=LAST,
        file="wbc",
        collection="ODDS",
        page=_ODDS_PAGE + "wbc/",
        urls=(_ODDS + "ebz9v9kdnvykzcb/wbc.mat?dl=1",),
        checksum="dfdd3b9d0a6099dc418b840b885652f2f5cab1685f01f95585a768ad61f5532f",
        shares_rows_with=("wbc", "adbench-wdbc"),
    ),
)

_STREAMS = (
    Entry(
        name="annthyroid",
        title="Thyroid Disease, training and test sets",
        n_rows=7200,
        n_features=6,
        n_anomalies=534,
        anomalies="hyperfunction and subnormal function",
        order=MIXED,
        file="streams/annthyroid",
        collection="ODDS",
        page=_ODDS_PAGE + "annthyroid-dataset/",
        urls=(_ODDS + "aifk51owxbogwav/annthyroid.mat?dl=1", _ADBENCH + "2_annthyroid.npz"),
        checksum="847eafa15263f4f65b1059a486f9d479c86f7e40e4721dee59f55f9bd0f74ca8",
        groups=("streams",),
        shares_rows_with=("thyroid",),
    ),
    Entry(
        name="mammography",
        title="Mammography",
        n_rows=11183,
        n_features=6,
        n_anomalies=260,
        anomalies="microcalcifications",
        order=CLUSTERED,
        file="streams/mammography",
        collection="ODDS",
        page=_ODDS_PAGE + "mammography-dataset/",
        urls=(_ODDS + "tq2v4hhwyv17hlk/mammography.mat?dl=1", _ADBENCH + "23_mammography.npz"),
        checksum="c425e7a4154c1441fd59cb0bc82c0d412f4c9934488c9d3bc5d3b63c0ddb034a",
        groups=("streams",),
    ),
    Entry(
        name="shuttle",
        title="Statlog Shuttle, without class 4",
        n_rows=49097,
        n_features=9,
        n_anomalies=3511,
        anomalies="the classes 2, 3, 5, 6 and 7",
        order=MIXED,
        file="streams/shuttle",
        collection="ODDS",
        page=_ODDS_PAGE + "shuttle-dataset/",
        urls=(_ODDS + "mk8ozgisimfn3dw/shuttle.mat?dl=1", _ADBENCH + "32_shuttle.npz"),
        checksum="7a3acfce6aa95e3ee61901c49c9760851a1dc94ae3b6b25126b6362918bbb126",
        groups=("streams",),
    ),
    Entry(
        name="http",
        title="KDD Cup 1999, HTTP: duration, bytes sent and received as log(x + 0.1)",
        n_rows=567498,
        n_features=3,
        n_anomalies=2211,
        anomalies="attacks",
        order=CLUSTERED,
        file="streams/http",
        collection="ODDS",
        page=_ODDS_PAGE + "http-kddcup99-dataset/",
        urls=(_ADBENCH + "16_http.npz",),  # the .mat of ODDS is HDF5
        checksum="bd03d0a0ec44ebea880f5a4e274146441f00cf28577ee8ee228bc538266a986a",
        groups=("streams",),
    ),
    Entry(
        name="forestcover",
        title="Covertype, classes 2 and 4, quantitative columns",
        n_rows=286048,
        n_features=10,
        n_anomalies=2747,
        anomalies="class 4, cottonwood and willow",
        order=CLUSTERED,
        file="streams/forestcover",
        collection="ODDS",
        page=_ODDS_PAGE + "forestcovercovertype-dataset/",
        urls=(_ODDS + "awx8iuzbu8dkxf1/cover.mat?dl=1", _ADBENCH + "10_cover.npz"),
        checksum="de1a138dadb69f173fd3a8859d7659e1c9e92ce4e5e29f5b5147e64cf237777e",
        groups=("streams",),
    ),
    Entry(
        name="nyc-taxi",
        title="New York taxi rides per half hour, a point being the last 48 values",
        n_rows=10273,
        n_features=48,
        n_anomalies=1035,
        anomalies="points whose last value is in one of NAB's five windows",
        order=CLUSTERED,
        file="streams/nyc_taxi_shingle48",
        label="y_nab",
        original="nab/nyc_taxi.csv",
        original_reader="taxi",
        collection="NAB",
        page="https://github.com/numenta/NAB",
        urls=("https://raw.githubusercontent.com/numenta/NAB/master/data/realKnownCause/nyc_taxi.csv",),
        checksum="1b11ab068cc7f347b5fb77db84411b82915c3f0ffd4df4c16aaf2187c74d9b32",
        groups=("streams",),
    ),
)

_ADBENCH_SETS = (
    Entry(
        name="adbench-annthyroid",
        title="Thyroid Disease, training and test sets",
        n_rows=7200,
        n_features=6,
        n_anomalies=534,
        anomalies="hyperfunction and subnormal function",
        order=MIXED,
        file="adbench/annthyroid",
        collection="ADBench",
        page=_ADBENCH_PAGE,
        urls=(_ADBENCH + "2_annthyroid.npz",),
        checksum="847eafa15263f4f65b1059a486f9d479c86f7e40e4721dee59f55f9bd0f74ca8",
        groups=("adbench",),
        same_as="annthyroid",
        shares_rows_with=("thyroid",),
    ),
    Entry(
        name="adbench-breastw",
        title="Breast Cancer Wisconsin (Original), complete rows",
        n_rows=683,
        n_features=9,
        n_anomalies=239,
        anomalies="malignant tumours",
        order=MIXED,
        file="adbench/breastw",
        collection="ADBench",
        page=_ADBENCH_PAGE,
        urls=(_ADBENCH + "4_breastw.npz", _ODDS + "g3hlnucj71kfvq4/breastw.mat?dl=1"),
        checksum="f84fa01d8978f38c21e50fa9c77890054436fc256e32a1a580aa2789ea52395d",
        groups=("adbench",),
        shares_rows_with=("adbench-wbc",),
    ),
    Entry(
        name="adbench-ionosphere",
        title="Ionosphere, scaled to [0, 1], without its first two columns",
        n_rows=351,
        n_features=32,
        n_anomalies=126,
        anomalies='"bad" radar returns',
        order=MIXED,
        file="adbench/Ionosphere",
        collection="ADBench",
        page=_ADBENCH_PAGE,
        urls=(_ADBENCH + "18_Ionosphere.npz",),
        checksum="6462a2c4c62c6e83d371e2bc5a1e23bc718e69908785fb95f2657834edb53c8e",
        groups=("adbench",),
        same_as="ionosphere",
    ),
    Entry(
        name="adbench-landsat",
        title="Statlog Landsat Satellite, standardised",
        n_rows=6435,
        n_features=36,
        n_anomalies=1333,
        anomalies="the classes 4 and 5",
        order=CLUSTERED,
        file="adbench/landsat",
        collection="ADBench",
        page=_ADBENCH_PAGE,
        urls=(_ADBENCH + "19_landsat.npz",),
        checksum="87d0bc8b4e0cfeced93ff2e67e10338ee3470d8cce0aa997154e6381d79bb0f3",
        groups=("adbench",),
        shares_rows_with=("satellite", "adbench-satimage-2"),
    ),
    Entry(
        name="adbench-lymphography",
        title="Lymphography",
        n_rows=148,
        n_features=18,
        n_anomalies=6,
        anomalies="the two smallest classes: normal and fibrosis",
        order=MIXED,
        file="adbench/Lymphography",
        collection="ADBench",
        page=_ADBENCH_PAGE,
        urls=(_ADBENCH + "21_Lymphography.npz", _ODDS + "ag469ssk0lmctco/lympho.mat?dl=1"),
        checksum="57ccef9b3daf7aa38ee95112127c4f188cf49099e30f8144a45c61fcadf05139",
        groups=("adbench",),
    ),
    Entry(
        name="adbench-mammography",
        title="Mammography",
        n_rows=11183,
        n_features=6,
        n_anomalies=260,
        anomalies="microcalcifications",
        order=CLUSTERED,
        file="adbench/mammography",
        collection="ADBench",
        page=_ADBENCH_PAGE,
        urls=(_ADBENCH + "23_mammography.npz",),
        checksum="c425e7a4154c1441fd59cb0bc82c0d412f4c9934488c9d3bc5d3b63c0ddb034a",
        groups=("adbench",),
        same_as="mammography",
    ),
    Entry(
        name="adbench-satimage-2",
        title="Statlog Landsat Satellite, with few rows of class 2",
        n_rows=5803,
        n_features=36,
        n_anomalies=71,
        anomalies="class 2, reduced to 71 rows",
        order=LAST,
        file="adbench/satimage-2",
        collection="ADBench",
        page=_ADBENCH_PAGE,
        urls=(_ADBENCH + "31_satimage-2.npz", _ODDS + "hckgvu9m6fs441p/satimage-2.mat?dl=1"),
        checksum="67d3260784329dc4de8f71ec34e0b9f425609fd1c26ef99dd4d29d3d5c3af95a",
        groups=("adbench",),
        shares_rows_with=("satellite", "adbench-landsat"),
    ),
    Entry(
        name="adbench-vertebral",
        title="Vertebral Column",
        n_rows=240,
        n_features=6,
        n_anomalies=30,
        anomalies="patients without a disease, reduced to 30 rows (the normal points are the patients with one)",
        order=LAST,
        file="adbench/vertebral",
        collection="ADBench",
        page=_ADBENCH_PAGE,
        urls=(_ADBENCH + "39_vertebral.npz", _ODDS + "5kuqb387sgvwmrb/vertebral.mat?dl=1"),
        checksum="4decf6dcff76beb70fb064e13ba63b43225f6064d719a8cf75a6b28e22811b23",
        groups=("adbench",),
    ),
    Entry(
        name="adbench-waveform",
        title="Waveform",
        n_rows=3443,
        n_features=21,
        n_anomalies=100,
        anomalies="class 0, reduced to 100 rows",
        order=FIRST,
        file="adbench/Waveform",
        collection="ADBench",
        page=_ADBENCH_PAGE,
        urls=(_ADBENCH + "41_Waveform.npz",),
        checksum="13ba0ffb3ea5923d1bff136dad0a19a2c0169ae840006b9a388128b4c8eb7bbc",
        groups=("adbench",),
    ),
    Entry(
        name="adbench-wbc",
        title="Breast Cancer Wisconsin (Original), without repeated rows and with few malignant tumours",
        n_rows=223,
        n_features=9,
        n_anomalies=10,
        anomalies="malignant tumours, reduced to 10 rows",
        order=FIRST,
        file="adbench/WBC",
        collection="ADBench",
        page=_ADBENCH_PAGE,
        urls=(_ADBENCH + "42_WBC.npz",),
        checksum="9cb7cdd9ef6a195a1e17a93c840530fe270a8c8aa37739a9d2b618eea285809a",
        groups=("adbench",),
        shares_rows_with=("adbench-breastw",),
    ),
    Entry(
        name="adbench-wdbc",
        title="Breast Cancer Wisconsin (Diagnostic), with few malignant tumours",
        n_rows=367,
        n_features=30,
        n_anomalies=10,
        anomalies="malignant tumours, reduced to 10 rows",
        order=FIRST,
        file="adbench/WDBC",
        collection="ADBench",
        page=_ADBENCH_PAGE,
        urls=(_ADBENCH + "43_WDBC.npz",),
        checksum="eec4f6dc99fdda9dbcdf1bf8f46137a8c9c7336bfacef77a7dee6c0658c28215",
        groups=("adbench",),
        shares_rows_with=("wbc", "odds-wbc"),
    ),
    Entry(
        name="adbench-wpbc",
        title="Breast Cancer Wisconsin (Prognostic), scaled to [0, 1]",
        n_rows=198,
        n_features=33,
        n_anomalies=47,
        anomalies="recurrent tumours",
        order=MIXED,
        file="adbench/WPBC",
        collection="ADBench",
        page=_ADBENCH_PAGE,
        urls=(_ADBENCH + "46_WPBC.npz",),
        checksum="f0322f11789da76bc23c32d537099ca0227f841c1244640d0728640931c770ef",
        groups=("adbench",),
    ),
    Entry(
        name="adbench-yeast",
        title="Yeast, standardised",
        n_rows=1484,
        n_features=8,
        n_anomalies=507,
        anomalies="the rows that ADBench marks; it does not name the classes",
        order=MIXED,
        file="adbench/yeast",
        collection="ADBench",
        page=_ADBENCH_PAGE,
        urls=(_ADBENCH + "47_yeast.npz",),
        checksum="7c59bb8c165f72c34955954ae997fc9251e386c9ad7960bcf941554557be3aff",
        groups=("adbench",),
    ),
)

CATALOGUE: dict[str, Entry] = {entry.name: entry for entry in (*_PAPER, *_WITHOUT_GROUP, *_STREAMS, *_ADBENCH_SETS)}
