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
const definition = loader.loadSync([...protos, "google/rpc/status.proto", "google/rpc/error_details.proto"], {
  includeDirs: [fileURLToPath(new URL("../../proto", import.meta.url))],
  enums: String, longs: Number, defaults: true, keepCase: true,
});
const { regnum } = grpc.loadPackageDefinition(definition);
const { MetadataService } = regnum.metadata.v1, { LogService, ProducerService } = regnum.broker.v1;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

const clients = new Map(); // by service and address
function call(Service, address, method, request) {
  const key = `${Service.serviceName} ${address}`;
  const options = { "grpc.max_receive_message_length": 64 * 2 ** 20 }; // the default of 4 MiB is less than a record may have
  if (!clients.has(key)) clients.set(key, new Service(address, grpc.credentials.createInsecure(), options));
  return new Promise((done, fail) => clients.get(key)[method](
    { header: { client_id: "example" }, ...request }, { deadline: Date.now() + 10_000 },
    (error, answer) => (error ? fail(error) : done(answer))));
}

const seeds = bootstrap.split(",");
let brokers = seeds, turn = 0, newest = 0, leaders = []; // address of each partition's leader, or undefined
// Begins at another broker each time, and takes nothing older than before: one that is cut off answers as promptly as any.
// Returns what is wrong where no broker helps.
async function refresh() {
  const addresses = [...new Set([...brokers, ...seeds])];
  let problem;
  for (let asked = 0; asked < addresses.length; asked++) {
    const address = addresses[turn++ % addresses.length];
    try {
      const answer = await call(MetadataService, address, "GetMetadata", { topics: [topic] });
      const { error_code, topic: found } = answer.topics[0];
      if (answer.version < newest) continue;
      if (!found?.partitions.length) {
        problem = error_code; // there is no such topic, or this broker has no metadata yet
        continue;
      }
      const at = Object.fromEntries(answer.brokers.map((one) => [one.id, `${one.client.host}:${one.client.port}`]));
      newest = answer.version;
      brokers = Object.values(at);
      leaders = [];
      for (const one of found.partitions) leaders[one.partition] = at[one.leader];
      return undefined;
    } catch (error) {
      problem = error.message; // this broker is away: ask the next one
    }
  }
  return problem;
}

// Codes after which the same request, with the same sequence numbers, may succeed; all others are given up.
const AGAIN = new Set(["UNKNOWN_TOPIC_OR_PARTITION", "LEADER_NOT_AVAILABLE", "NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH",
  "OFFSET_NOT_AVAILABLE", "REQUEST_TIMED_OUT", "BROKER_NOT_AVAILABLE", "NOT_ENOUGH_REPLICAS", "UNKNOWN_LEADER_EPOCH",
  "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "KAFKA_STORAGE_ERROR", "THROTTLING_QUOTA_EXCEEDED"].map((name) => `ERROR_CODE_${name}`));
const DEAD = new Set([grpc.status.UNAVAILABLE, grpc.status.DEADLINE_EXCEEDED, grpc.status.CANCELLED]);

// After a call that failed as a whole: waits as RetryInfo says, or throws what no repeat helps against.
async function waitToRepeat(error) {
  const [status] = error.metadata?.get("grpc-status-details-bin") ?? [];
  const details = status ? definition["google.rpc.Status"].deserialize(status).details : [];
  const info = details.find((one) => one.type_url.endsWith("/google.rpc.RetryInfo"));
  if (!info && !DEAD.has(error.code)) throw error;
  const { retry_delay: delay } = info ? definition["google.rpc.RetryInfo"].deserialize(info.value) : {};
  if (delay) await sleep(delay.seconds * 1000 + delay.nanos / 1e6);
}

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
        await waitToRepeat(error);
      }
    }
    await sleep(pause);
    await refresh();
  }
}

async function producerId() {
  for (let next = 0; ; next++) {
    try {
      return await call(ProducerService, brokers[next % brokers.length], "InitProducerId", {});
    } catch (error) {
      await waitToRepeat(error); // a broker that is not registered says BROKER_NOT_AVAILABLE: ask the next one
      await sleep(100);
    }
  }
}

for (let tries = 0, problem; (problem = await refresh()); tries++) {
  if (tries === 20) {
    console.error(`no partitions of topic ${topic} found: ${problem}`);
    process.exit(1);
  }
  await sleep(250); // a new topic is known everywhere within seconds
}
const id = await producerId();
const sequences = leaders.map(() => 0), ends = leaders.map(() => 0); // behind what is acknowledged
for (let number = 0; number < Number(count); number++) {
  const partition = number % sequences.length;
  const plain = { records: [{ value: Buffer.from(String(number)) }], base_sequence: sequences[partition]++, ...id };
  const result = await atLeader(partition, "Produce", { acks: "ACKS_ALL", partitions: [{ topic, partition, plain }] });
  ends[partition] = result.base_offset + 1;
}

const read = [];
for (const partition of ends.keys()) {
  // A new leader's high watermark may be behind at first. What has not come in a hundred waits is lost.
  for (let offset = 0, end = ends[partition], waits = 0; offset < end && waits < 100; waits++) {
    const result = await atLeader(partition, "Fetch", { form: "RECORD_FORM_RECORDS", max_wait_ms: 100, min_bytes: 1,
      max_bytes: 2 ** 20, partitions: [{ topic, partition, offset }] });
    for (const record of result.records) {
      read.push(Number(record.value.toString()));
      offset = record.offset + 1;
      waits = 0;
    }
    end = Math.max(end, result.high_watermark);
    if (!result.records.length) await refresh(); // a leader that has been replaced and does not know it has no news
  }
}
const once = new Set(read);
console.log(`${count} acknowledged, ${read.length} read, ${Number(count) - once.size} lost, ${read.length - once.size} twice`);
process.exit(once.size === Number(count) && read.length === once.size ? 0 : 1);
