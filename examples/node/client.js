// A complete client loop: an idempotent producer and a reader that go on when a leader dies.
//
//     npm install && node client.js HOST:PORT,... TOPIC COUNT
//
// writes COUNT numbered records, each exactly once, to the partitions of TOPIC in turn, and reads them back.
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";
import { fileURLToPath } from "node:url";

const [bootstrap, topic, count] = process.argv.slice(2);
const protos = ["metadata/v1/metadata", "broker/v1/log", "broker/v1/producer"].map((name) => `regnum/${name}.proto`);
const { regnum } = grpc.loadPackageDefinition(loader.loadSync(protos, {
  includeDirs: [fileURLToPath(new URL("../../proto", import.meta.url))],
  enums: String, longs: Number, defaults: true, keepCase: true,
}));
const { MetadataService } = regnum.metadata.v1, { LogService, ProducerService } = regnum.broker.v1;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

const clients = new Map(); // by service and address
function call(Service, address, method, request) {
  const key = `${Service.serviceName} ${address}`;
  if (!clients.has(key)) clients.set(key, new Service(address, grpc.credentials.createInsecure()));
  return new Promise((done, fail) => clients.get(key)[method](
    { header: { client_id: "example" }, ...request }, { deadline: Date.now() + 10_000 },
    (error, answer) => (error ? fail(error) : done(answer))));
}

let brokers = bootstrap.split(","), leaders = []; // address of each partition's leader, or undefined
async function refresh() {
  for (const address of [...brokers]) {
    try {
      const answer = await call(MetadataService, address, "GetMetadata", { topics: [topic] });
      const at = Object.fromEntries(answer.brokers.map((one) => [one.id, `${one.client.host}:${one.client.port}`]));
      brokers = Object.values(at);
      leaders = [];
      for (const one of answer.topics[0].topic.partitions) leaders[one.partition] = at[one.leader];
      if (leaders.length) return;
    } catch { /* this broker is away: ask the next one */ }
  }
}

// Codes after which the same request, with the same sequence numbers, may succeed; all others are given up.
const AGAIN = new Set(["UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH",
  "OFFSET_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "BROKER_NOT_AVAILABLE", "NOT_ENOUGH_REPLICAS", "UNKNOWN_LEADER_EPOCH",
  "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "KAFKA_STORAGE_ERROR", "THROTTLING_QUOTA_EXCEEDED"].map((name) => `ERROR_CODE_${name}`));
const DEAD = new Set([grpc.status.UNAVAILABLE, grpc.status.DEADLINE_EXCEEDED, grpc.status.CANCELLED]);

async function atLeader(partition, method, request) {
  for (let pause = 20; ; pause = Math.min(pause * 2, 1000)) {
    if (leaders[partition]) {
      try {
        const answer = await call(LogService, leaders[partition], method, request);
        const result = answer.results[0];
        if (answer.throttle_time_ms) await sleep(answer.throttle_time_ms);
        if (result.error_code === "ERROR_CODE_NONE") return result;
        if (!AGAIN.has(result.error_code)) throw new Error(`${result.error_code}: ${result.error_message}`);
      } catch (error) {
        if (!DEAD.has(error.code)) throw error;
      }
    }
    await sleep(pause);
    await refresh();
  }
}

await refresh();
const id = await call(ProducerService, brokers[0], "InitProducerId", {});
const sequences = leaders.map(() => 0);
for (let number = 0; number < Number(count); number++) {
  const partition = number % leaders.length;
  const plain = { records: [{ value: Buffer.from(String(number)) }], base_sequence: sequences[partition]++, ...id };
  await atLeader(partition, "Produce", { acks: "ACKS_ALL", partitions: [{ topic, partition, plain }] });
}

const read = [];
for (const partition of leaders.keys()) {
  for (let offset = 0, end = 1; offset < end; ) {
    const from = { form: "RECORD_FORM_RECORDS", max_wait_ms: 100, partitions: [{ topic, partition, offset }] };
    const result = await atLeader(partition, "Fetch", from);
    for (const record of result.records) read.push(Number(record.value.toString()));
    offset = result.records.length ? result.records.at(-1).offset + 1 : offset;
    end = result.high_watermark;
  }
}
const once = new Set(read);
console.log(`${count} acknowledged, ${read.length} read, ${Number(count) - once.size} lost, ${read.length - once.size} twice`);
process.exit(once.size === Number(count) && read.length === once.size ? 0 : 1);
