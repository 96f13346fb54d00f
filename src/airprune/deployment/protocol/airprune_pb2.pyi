from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Frame(_message.Message):
    __slots__ = ("payload", "beat", "chunk", "hello", "welcome", "refusal", "measured", "edge_round", "edge_report", "orders", "upload", "receipt", "presence", "redial", "denied", "goodbye", "probe", "certificate_request", "certificate", "model_offer", "model_request", "model_file", "model_held", "secure_step", "content")
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    BEAT_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    EDGE_ROUND_FIELD_NUMBER: _ClassVar[int]
    EDGE_REPORT_FIELD_NUMBER: _ClassVar[int]
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_FIELD_NUMBER: _ClassVar[int]
    REDIAL_FIELD_NUMBER: _ClassVar[int]
    DENIED_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    PROBE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    MODEL_OFFER_FIELD_NUMBER: _ClassVar[int]
    MODEL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    MODEL_FILE_FIELD_NUMBER: _ClassVar[int]
    MODEL_HELD_FIELD_NUMBER: _ClassVar[int]
    SECURE_STEP_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    payload: Payload
    beat: Beat
    chunk: Chunk
    hello: Hello
    welcome: Welcome
    refusal: Refusal
    measured: Measured
    edge_round: EdgeRound
    edge_report: EdgeReport
    orders: Orders
    upload: Upload
    receipt: Receipt
    presence: Presence
    redial: Redial
    denied: Denied
    goodbye: Goodbye
    probe: Probe
    certificate_request: CertificateRequest
    certificate: Certificate
    model_offer: ModelOffer
    model_request: ModelRequest
    model_file: ModelFile
    model_held: ModelHeld
    secure_step: SecureStep
    content: bytes
    def __init__(self, payload: _Optional[_Union[Payload, _Mapping]] = ..., beat: _Optional[_Union[Beat, _Mapping]] = ..., chunk: _Optional[_Union[Chunk, _Mapping]] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., measured: _Optional[_Union[Measured, _Mapping]] = ..., edge_round: _Optional[_Union[EdgeRound, _Mapping]] = ..., edge_report: _Optional[_Union[EdgeReport, _Mapping]] = ..., orders: _Optional[_Union[Orders, _Mapping]] = ..., upload: _Optional[_Union[Upload, _Mapping]] = ..., receipt: _Optional[_Union[Receipt, _Mapping]] = ..., presence: _Optional[_Union[Presence, _Mapping]] = ..., redial: _Optional[_Union[Redial, _Mapping]] = ..., denied: _Optional[_Union[Denied, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., probe: _Optional[_Union[Probe, _Mapping]] = ..., certificate_request: _Optional[_Union[CertificateRequest, _Mapping]] = ..., certificate: _Optional[_Union[Certificate, _Mapping]] = ..., model_offer: _Optional[_Union[ModelOffer, _Mapping]] = ..., model_request: _Optional[_Union[ModelRequest, _Mapping]] = ..., model_file: _Optional[_Union[ModelFile, _Mapping]] = ..., model_held: _Optional[_Union[ModelHeld, _Mapping]] = ..., secure_step: _Optional[_Union[SecureStep, _Mapping]] = ..., content: _Optional[bytes] = ...) -> None: ...

class Payload(_message.Message):
    __slots__ = ("size", "digest")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    size: int
    digest: bytes
    def __init__(self, size: _Optional[int] = ..., digest: _Optional[bytes] = ...) -> None: ...

class Beat(_message.Message):
    __slots__ = ("number", "is_answer")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    IS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    number: int
    is_answer: bool
    def __init__(self, number: _Optional[int] = ..., is_answer: bool = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("data",)
    DATA_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    def __init__(self, data: _Optional[bytes] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "version", "software")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SOFTWARE_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    version: str
    software: str
    def __init__(self, protocol: _Optional[int] = ..., version: _Optional[str] = ..., software: _Optional[str] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("run", "scenario", "index", "input_shape", "num_classes", "max_payload_bytes", "beat_s", "dead_after_s", "num_devices", "num_edges", "devices", "denied", "fleet", "parents", "stays", "packages", "signature", "certificate")
    class DevicesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class PackagesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RUN_FIELD_NUMBER: _ClassVar[int]
    SCENARIO_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    INPUT_SHAPE_FIELD_NUMBER: _ClassVar[int]
    NUM_CLASSES_FIELD_NUMBER: _ClassVar[int]
    MAX_PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    BEAT_S_FIELD_NUMBER: _ClassVar[int]
    DEAD_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    NUM_DEVICES_FIELD_NUMBER: _ClassVar[int]
    NUM_EDGES_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    DENIED_FIELD_NUMBER: _ClassVar[int]
    FLEET_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    STAYS_FIELD_NUMBER: _ClassVar[int]
    PACKAGES_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    run: str
    scenario: str
    index: int
    input_shape: _containers.RepeatedScalarFieldContainer[int]
    num_classes: int
    max_payload_bytes: int
    beat_s: float
    dead_after_s: float
    num_devices: int
    num_edges: int
    devices: _containers.ScalarMap[str, int]
    denied: _containers.RepeatedScalarFieldContainer[str]
    fleet: Fleet
    parents: _containers.RepeatedCompositeFieldContainer[Parent]
    stays: bool
    packages: _containers.ScalarMap[str, str]
    signature: bytes
    certificate: bytes
    def __init__(self, run: _Optional[str] = ..., scenario: _Optional[str] = ..., index: _Optional[int] = ..., input_shape: _Optional[_Iterable[int]] = ..., num_classes: _Optional[int] = ..., max_payload_bytes: _Optional[int] = ..., beat_s: _Optional[float] = ..., dead_after_s: _Optional[float] = ..., num_devices: _Optional[int] = ..., num_edges: _Optional[int] = ..., devices: _Optional[_Mapping[str, int]] = ..., denied: _Optional[_Iterable[str]] = ..., fleet: _Optional[_Union[Fleet, _Mapping]] = ..., parents: _Optional[_Iterable[_Union[Parent, _Mapping]]] = ..., stays: bool = ..., packages: _Optional[_Mapping[str, str]] = ..., signature: _Optional[bytes] = ..., certificate: _Optional[bytes] = ...) -> None: ...

class Fleet(_message.Message):
    __slots__ = ("addresses", "homes", "standby")
    class AddressesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class HomesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    HOMES_FIELD_NUMBER: _ClassVar[int]
    STANDBY_FIELD_NUMBER: _ClassVar[int]
    addresses: _containers.ScalarMap[str, str]
    homes: _containers.ScalarMap[str, str]
    standby: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, addresses: _Optional[_Mapping[str, str]] = ..., homes: _Optional[_Mapping[str, str]] = ..., standby: _Optional[_Iterable[str]] = ...) -> None: ...

class Parent(_message.Message):
    __slots__ = ("name", "address")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    name: str
    address: str
    def __init__(self, name: _Optional[str] = ..., address: _Optional[str] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason", "is_final")
    REASON_FIELD_NUMBER: _ClassVar[int]
    IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    reason: str
    is_final: bool
    def __init__(self, reason: _Optional[str] = ..., is_final: bool = ...) -> None: ...

class Measured(_message.Message):
    __slots__ = ("seconds_per_sample", "num_samples", "kernel", "machine", "num_more", "parts", "run", "trouble")
    SECONDS_PER_SAMPLE_FIELD_NUMBER: _ClassVar[int]
    NUM_SAMPLES_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    MACHINE_FIELD_NUMBER: _ClassVar[int]
    NUM_MORE_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    seconds_per_sample: float
    num_samples: int
    kernel: str
    machine: str
    num_more: int
    parts: _containers.RepeatedCompositeFieldContainer[Part]
    run: str
    trouble: str
    def __init__(self, seconds_per_sample: _Optional[float] = ..., num_samples: _Optional[int] = ..., kernel: _Optional[str] = ..., machine: _Optional[str] = ..., num_more: _Optional[int] = ..., parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ..., run: _Optional[str] = ..., trouble: _Optional[str] = ...) -> None: ...

class Part(_message.Message):
    __slots__ = ("seconds", "cached_seconds")
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    CACHED_SECONDS_FIELD_NUMBER: _ClassVar[int]
    seconds: float
    cached_seconds: float
    def __init__(self, seconds: _Optional[float] = ..., cached_seconds: _Optional[float] = ...) -> None: ...

class Probe(_message.Message):
    __slots__ = ("device", "bytes")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    device: int
    bytes: int
    def __init__(self, device: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class Probed(_message.Message):
    __slots__ = ("device", "uplink_bps")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    UPLINK_BPS_FIELD_NUMBER: _ClassVar[int]
    device: int
    uplink_bps: float
    def __init__(self, device: _Optional[int] = ..., uplink_bps: _Optional[float] = ...) -> None: ...

class DeviceOrders(_message.Message):
    __slots__ = ("device", "keep", "weight", "code", "rate_bps", "max_bytes", "last_counted", "planned_compute_s", "planned_uplink_s", "local_steps", "first_trained", "last_trained")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    RATE_BPS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_COUNTED_FIELD_NUMBER: _ClassVar[int]
    PLANNED_COMPUTE_S_FIELD_NUMBER: _ClassVar[int]
    PLANNED_UPLINK_S_FIELD_NUMBER: _ClassVar[int]
    LOCAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TRAINED_FIELD_NUMBER: _ClassVar[int]
    LAST_TRAINED_FIELD_NUMBER: _ClassVar[int]
    device: int
    keep: int
    weight: float
    code: int
    rate_bps: float
    max_bytes: int
    last_counted: int
    planned_compute_s: float
    planned_uplink_s: float
    local_steps: int
    first_trained: int
    last_trained: int
    def __init__(self, device: _Optional[int] = ..., keep: _Optional[int] = ..., weight: _Optional[float] = ..., code: _Optional[int] = ..., rate_bps: _Optional[float] = ..., max_bytes: _Optional[int] = ..., last_counted: _Optional[int] = ..., planned_compute_s: _Optional[float] = ..., planned_uplink_s: _Optional[float] = ..., local_steps: _Optional[int] = ..., first_trained: _Optional[int] = ..., last_trained: _Optional[int] = ...) -> None: ...

class EdgeRound(_message.Message):
    __slots__ = ("run", "global_round", "edge_round", "round_index", "learning_rate", "deadline_s", "model_digest", "sends_model", "served_weight", "orders", "chunk_sizes", "grace_s", "probes", "cohort")
    RUN_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_ROUND_FIELD_NUMBER: _ClassVar[int]
    EDGE_ROUND_FIELD_NUMBER: _ClassVar[int]
    ROUND_INDEX_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_S_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    SENDS_MODEL_FIELD_NUMBER: _ClassVar[int]
    SERVED_WEIGHT_FIELD_NUMBER: _ClassVar[int]
    ORDERS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_SIZES_FIELD_NUMBER: _ClassVar[int]
    GRACE_S_FIELD_NUMBER: _ClassVar[int]
    PROBES_FIELD_NUMBER: _ClassVar[int]
    COHORT_FIELD_NUMBER: _ClassVar[int]
    run: str
    global_round: int
    edge_round: int
    round_index: int
    learning_rate: float
    deadline_s: float
    model_digest: str
    sends_model: bool
    served_weight: float
    orders: _containers.RepeatedCompositeFieldContainer[DeviceOrders]
    chunk_sizes: _containers.RepeatedScalarFieldContainer[int]
    grace_s: float
    probes: _containers.RepeatedCompositeFieldContainer[Probe]
    cohort: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, run: _Optional[str] = ..., global_round: _Optional[int] = ..., edge_round: _Optional[int] = ..., round_index: _Optional[int] = ..., learning_rate: _Optional[float] = ..., deadline_s: _Optional[float] = ..., model_digest: _Optional[str] = ..., sends_model: bool = ..., served_weight: _Optional[float] = ..., orders: _Optional[_Iterable[_Union[DeviceOrders, _Mapping]]] = ..., chunk_sizes: _Optional[_Iterable[int]] = ..., grace_s: _Optional[float] = ..., probes: _Optional[_Iterable[_Union[Probe, _Mapping]]] = ..., cohort: _Optional[_Iterable[int]] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("device", "fate", "reason", "arrived_s", "compute_s", "uplink_s", "bytes", "rtt_s", "digest", "started_s", "exchange_bytes")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    FATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ARRIVED_S_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_S_FIELD_NUMBER: _ClassVar[int]
    UPLINK_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    RTT_S_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    STARTED_S_FIELD_NUMBER: _ClassVar[int]
    EXCHANGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    device: int
    fate: str
    reason: str
    arrived_s: float
    compute_s: float
    uplink_s: float
    bytes: int
    rtt_s: float
    digest: str
    started_s: float
    exchange_bytes: int
    def __init__(self, device: _Optional[int] = ..., fate: _Optional[str] = ..., reason: _Optional[str] = ..., arrived_s: _Optional[float] = ..., compute_s: _Optional[float] = ..., uplink_s: _Optional[float] = ..., bytes: _Optional[int] = ..., rtt_s: _Optional[float] = ..., digest: _Optional[str] = ..., started_s: _Optional[float] = ..., exchange_bytes: _Optional[int] = ...) -> None: ...

class EdgeReport(_message.Message):
    __slots__ = ("run", "global_round", "edge_round", "round_index", "model_digest", "outcomes", "took_s", "trouble", "probed")
    RUN_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_ROUND_FIELD_NUMBER: _ClassVar[int]
    EDGE_ROUND_FIELD_NUMBER: _ClassVar[int]
    ROUND_INDEX_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    TOOK_S_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    PROBED_FIELD_NUMBER: _ClassVar[int]
    run: str
    global_round: int
    edge_round: int
    round_index: int
    model_digest: str
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    took_s: float
    trouble: str
    probed: _containers.RepeatedCompositeFieldContainer[Probed]
    def __init__(self, run: _Optional[str] = ..., global_round: _Optional[int] = ..., edge_round: _Optional[int] = ..., round_index: _Optional[int] = ..., model_digest: _Optional[str] = ..., outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ..., took_s: _Optional[float] = ..., trouble: _Optional[str] = ..., probed: _Optional[_Iterable[_Union[Probed, _Mapping]]] = ...) -> None: ...

class Orders(_message.Message):
    __slots__ = ("run", "global_round", "edge_round", "round_index", "keep", "code", "learning_rate", "rate_bps", "time_left_s", "model_digest", "last_counted", "max_bytes", "local_steps", "first_trained", "last_trained", "session")
    RUN_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_ROUND_FIELD_NUMBER: _ClassVar[int]
    EDGE_ROUND_FIELD_NUMBER: _ClassVar[int]
    ROUND_INDEX_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    RATE_BPS_FIELD_NUMBER: _ClassVar[int]
    TIME_LEFT_S_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    LAST_COUNTED_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOCAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    FIRST_TRAINED_FIELD_NUMBER: _ClassVar[int]
    LAST_TRAINED_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    run: str
    global_round: int
    edge_round: int
    round_index: int
    keep: int
    code: int
    learning_rate: float
    rate_bps: float
    time_left_s: float
    model_digest: str
    last_counted: int
    max_bytes: int
    local_steps: int
    first_trained: int
    last_trained: int
    session: bytes
    def __init__(self, run: _Optional[str] = ..., global_round: _Optional[int] = ..., edge_round: _Optional[int] = ..., round_index: _Optional[int] = ..., keep: _Optional[int] = ..., code: _Optional[int] = ..., learning_rate: _Optional[float] = ..., rate_bps: _Optional[float] = ..., time_left_s: _Optional[float] = ..., model_digest: _Optional[str] = ..., last_counted: _Optional[int] = ..., max_bytes: _Optional[int] = ..., local_steps: _Optional[int] = ..., first_trained: _Optional[int] = ..., last_trained: _Optional[int] = ..., session: _Optional[bytes] = ...) -> None: ...

class SecureStep(_message.Message):
    __slots__ = ("run", "global_round", "edge_round", "session", "step", "number", "num_devices", "certificates", "trouble", "accused")
    class Step(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CERTIFICATES: _ClassVar[SecureStep.Step]
        KEYS: _ClassVar[SecureStep.Step]
        SHARES: _ClassVar[SecureStep.Step]
        OPEN: _ClassVar[SecureStep.Step]
        REVEAL: _ClassVar[SecureStep.Step]
    CERTIFICATES: SecureStep.Step
    KEYS: SecureStep.Step
    SHARES: SecureStep.Step
    OPEN: SecureStep.Step
    REVEAL: SecureStep.Step
    class CertificatesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: bytes
        def __init__(self, key: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...
    RUN_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_ROUND_FIELD_NUMBER: _ClassVar[int]
    EDGE_ROUND_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NUM_DEVICES_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    ACCUSED_FIELD_NUMBER: _ClassVar[int]
    run: str
    global_round: int
    edge_round: int
    session: bytes
    step: SecureStep.Step
    number: int
    num_devices: int
    certificates: _containers.ScalarMap[int, bytes]
    trouble: str
    accused: int
    def __init__(self, run: _Optional[str] = ..., global_round: _Optional[int] = ..., edge_round: _Optional[int] = ..., session: _Optional[bytes] = ..., step: _Optional[_Union[SecureStep.Step, str]] = ..., number: _Optional[int] = ..., num_devices: _Optional[int] = ..., certificates: _Optional[_Mapping[int, bytes]] = ..., trouble: _Optional[str] = ..., accused: _Optional[int] = ...) -> None: ...

class Upload(_message.Message):
    __slots__ = ("run", "global_round", "edge_round", "round_index", "model_digest", "compute_s", "failure")
    RUN_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_ROUND_FIELD_NUMBER: _ClassVar[int]
    EDGE_ROUND_FIELD_NUMBER: _ClassVar[int]
    ROUND_INDEX_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIGEST_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_S_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    run: str
    global_round: int
    edge_round: int
    round_index: int
    model_digest: str
    compute_s: float
    failure: str
    def __init__(self, run: _Optional[str] = ..., global_round: _Optional[int] = ..., edge_round: _Optional[int] = ..., round_index: _Optional[int] = ..., model_digest: _Optional[str] = ..., compute_s: _Optional[float] = ..., failure: _Optional[str] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("run", "global_round", "edge_round", "verdict", "reason")
    RUN_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_ROUND_FIELD_NUMBER: _ClassVar[int]
    EDGE_ROUND_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    run: str
    global_round: int
    edge_round: int
    verdict: str
    reason: str
    def __init__(self, run: _Optional[str] = ..., global_round: _Optional[int] = ..., edge_round: _Optional[int] = ..., verdict: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Presence(_message.Message):
    __slots__ = ("devices", "late", "refused", "run", "idle", "troubles", "peers", "aside")
    class Device(_message.Message):
        __slots__ = ("device", "seconds_per_sample", "uplink_bps", "rtt_s", "num_samples", "kernel", "machine", "parts")
        DEVICE_FIELD_NUMBER: _ClassVar[int]
        SECONDS_PER_SAMPLE_FIELD_NUMBER: _ClassVar[int]
        UPLINK_BPS_FIELD_NUMBER: _ClassVar[int]
        RTT_S_FIELD_NUMBER: _ClassVar[int]
        NUM_SAMPLES_FIELD_NUMBER: _ClassVar[int]
        KERNEL_FIELD_NUMBER: _ClassVar[int]
        MACHINE_FIELD_NUMBER: _ClassVar[int]
        PARTS_FIELD_NUMBER: _ClassVar[int]
        device: int
        seconds_per_sample: float
        uplink_bps: float
        rtt_s: float
        num_samples: int
        kernel: str
        machine: str
        parts: _containers.RepeatedCompositeFieldContainer[Part]
        def __init__(self, device: _Optional[int] = ..., seconds_per_sample: _Optional[float] = ..., uplink_bps: _Optional[float] = ..., rtt_s: _Optional[float] = ..., num_samples: _Optional[int] = ..., kernel: _Optional[str] = ..., machine: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[Part, _Mapping]]] = ...) -> None: ...
    class Peer(_message.Message):
        __slots__ = ("serial", "expires_s", "software")
        SERIAL_FIELD_NUMBER: _ClassVar[int]
        EXPIRES_S_FIELD_NUMBER: _ClassVar[int]
        SOFTWARE_FIELD_NUMBER: _ClassVar[int]
        serial: str
        expires_s: float
        software: str
        def __init__(self, serial: _Optional[str] = ..., expires_s: _Optional[float] = ..., software: _Optional[str] = ...) -> None: ...
    class TroublesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class PeersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Presence.Peer
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Presence.Peer, _Mapping]] = ...) -> None: ...
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    IDLE_FIELD_NUMBER: _ClassVar[int]
    TROUBLES_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    ASIDE_FIELD_NUMBER: _ClassVar[int]
    devices: _containers.RepeatedCompositeFieldContainer[Presence.Device]
    late: int
    refused: int
    run: str
    idle: _containers.RepeatedScalarFieldContainer[str]
    troubles: _containers.ScalarMap[str, str]
    peers: _containers.MessageMap[str, Presence.Peer]
    aside: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, devices: _Optional[_Iterable[_Union[Presence.Device, _Mapping]]] = ..., late: _Optional[int] = ..., refused: _Optional[int] = ..., run: _Optional[str] = ..., idle: _Optional[_Iterable[str]] = ..., troubles: _Optional[_Mapping[str, str]] = ..., peers: _Optional[_Mapping[str, Presence.Peer]] = ..., aside: _Optional[_Iterable[str]] = ...) -> None: ...

class Redial(_message.Message):
    __slots__ = ("device", "edge")
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    EDGE_FIELD_NUMBER: _ClassVar[int]
    device: int
    edge: str
    def __init__(self, device: _Optional[int] = ..., edge: _Optional[str] = ...) -> None: ...

class Denied(_message.Message):
    __slots__ = ("serials",)
    SERIALS_FIELD_NUMBER: _ClassVar[int]
    serials: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, serials: _Optional[_Iterable[str]] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class CertificateRequest(_message.Message):
    __slots__ = ("name", "request", "certificate", "proof")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    name: str
    request: bytes
    certificate: bytes
    proof: bytes
    def __init__(self, name: _Optional[str] = ..., request: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., proof: _Optional[bytes] = ...) -> None: ...

class Certificate(_message.Message):
    __slots__ = ("name", "certificate", "trouble")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    certificate: bytes
    trouble: str
    def __init__(self, name: _Optional[str] = ..., certificate: _Optional[bytes] = ..., trouble: _Optional[str] = ...) -> None: ...

class ModelOffer(_message.Message):
    __slots__ = ("manifest", "signature", "certificate", "devices")
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    DEVICES_FIELD_NUMBER: _ClassVar[int]
    manifest: bytes
    signature: bytes
    certificate: bytes
    devices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, manifest: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., devices: _Optional[_Iterable[str]] = ...) -> None: ...

class ModelRequest(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: str
    def __init__(self, digest: _Optional[str] = ...) -> None: ...

class ModelFile(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: str
    def __init__(self, digest: _Optional[str] = ...) -> None: ...

class ModelHeld(_message.Message):
    __slots__ = ("name", "version", "trouble")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: int
    trouble: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[int] = ..., trouble: _Optional[str] = ...) -> None: ...
