"""REST Proxy v2 as scripts and libraries use it: the requests of its documentation, byte for byte, on a real server."""

from base64 import b64encode

from tests.support.clients import read_topic, unique_name
from tests.support.http_json import HttpAnswer, ask
from tests.support.server import KwireProcess

METADATA = "application/vnd.kafka.v2+json"
JSON_RECORDS = "application/vnd.kafka.json.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"


def produce(process: KwireProcess, path: str, body: bytes, media_type: str) -> HttpAnswer:
    return ask(f"{process.http_url}{path}", "POST", body, media_type, METADATA)


def get(process: KwireProcess, path: str) -> HttpAnswer:
    return ask(f"{process.http_url}{path}", accept=METADATA)


def test_json_and_binary_records_reach_kafka_clients(served: KwireProcess) -> None:
    topic = unique_name("proxy")
    told = produce(served, f"/topics/{topic}", b'{"records":[{"value":{"foo":"bar"}}]}', JSON_RECORDS)
    assert (told.status, told.content_type) == (200, METADATA)
    assert told.body == {
        "offsets": [{"partition": 0, "offset": 0, "error_code": None, "error": None}],
        "key_schema_id": None,
        "value_schema_id": None,
    }
    told = produce(
        served,
        f"/topics/{topic}",
        b'{"records":[{"key":"a2V5","value":"S2Fma2E="},{"value":"bG9ncw==","partition":0}]}',
        BINARY,
    )
    assert [one["offset"] for one in told.body["offsets"]] == [1, 2]
    header = {"key": "trace", "value": b64encode(b"t1").decode()}
    told = produce(
        served,
        f"/topics/{topic}/partitions/0",
        f'{{"records":[{{"value":1,"headers":[{{"key":"{header["key"]}","value":"{header["value"]}"}}]}}]}}'.encode(),
        JSON_RECORDS,
    )
    assert told.body["offsets"][0]["offset"] == 3
    records = read_topic(served.bootstrap, topic)[0]
    assert [(record.key, record.value) for record in records] == [
        (None, b'{"foo":"bar"}'),
        (b"key", b"Kafka"),
        (None, b"logs"),
        (None, b"1"),
    ]
    assert [tuple(header) for header in records[3].headers] == [("trace", b"t1")]


def test_metadata_is_told_as_rest_proxy_tells_it(served: KwireProcess) -> None:
    topic = unique_name("proxy-metadata")
    assert ask(f"{served.http_url}/topics/{topic}", "POST", {"num_partitions": 2}).status == 201
    listed = get(served, "/topics")
    assert listed.content_type == METADATA
    assert topic in listed.body
    assert not [name for name in listed.body if name.startswith("__")]
    brokers = get(served, "/brokers").body["brokers"]
    described = get(served, f"/topics/{topic}").body
    assert described["name"] == topic
    assert described["configs"]["cleanup.policy"] == "delete"
    partitions = described["partitions"]
    assert [one["partition"] for one in partitions] == [0, 1]
    for one in partitions:
        assert one["leader"] in brokers
        assert [replica["broker"] for replica in one["replicas"] if replica["leader"]] == [one["leader"]]
        assert all(replica["broker"] in brokers and replica["in_sync"] for replica in one["replicas"])
    assert get(served, f"/topics/{topic}/partitions").body == partitions
    assert get(served, f"/topics/{topic}/partitions/1").body == partitions[1]


def test_rooms_stand_among_the_topics(served: KwireProcess) -> None:
    room = unique_name("proxy-room")
    event = {"event_type": "message", "data": {"text": "hello"}}
    assert ask(f"{served.http_url}/rooms/{room}/events", "POST", event).status == 201
    assert room in get(served, "/topics").body
    assert get(served, f"/topics/{room}").body["configs"]["cleanup.policy"] == "delete"
    told = produce(served, f"/topics/{room}", b'{"records":[{"value":{"text":"from the proxy"}}]}', JSON_RECORDS)
    assert told.body["offsets"][0]["offset"] == 1
    history = ask(f"{served.http_url}/rooms/{room}/events").body
    assert [one["data"]["text"] for one in history["events"]] == ["hello", "from the proxy"]


def test_errors_have_rest_proxys_codes(served: KwireProcess) -> None:
    topic = unique_name("proxy-errors")
    assert ask(f"{served.http_url}/topics/{topic}", "POST", {"num_partitions": 1}).status == 201

    def code(answer: HttpAnswer) -> tuple[int, int]:
        assert answer.content_type == METADATA
        assert set(answer.body) == {"error_code", "message"}
        return answer.status, answer.body["error_code"]

    assert code(get(served, f"/topics/{unique_name('none')}")) == (404, 40401)
    assert code(get(served, f"/topics/{topic}/partitions/7")) == (404, 40402)
    assert code(produce(served, f"/topics/{topic}/partitions/7", b'{"records":[{"value":1}]}', JSON_RECORDS)) == (
        404,
        40402,
    )
    assert code(produce(served, f"/topics/{topic}", b"{}", JSON_RECORDS)) == (422, 422)
    assert code(produce(served, f"/topics/{topic}", b"{", JSON_RECORDS)) == (400, 400)
    avro = "application/vnd.kafka.avro.v2+json"
    assert code(produce(served, f"/topics/{topic}", b'{"records":[{"value":1}]}', avro)) == (415, 415)
    assert code(produce(served, "/topics/__consumer_offsets", b'{"records":[{"value":1}]}', JSON_RECORDS)) == (
        400,
        40002,
    )
