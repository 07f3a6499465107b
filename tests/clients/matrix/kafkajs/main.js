// KafkaJS through the matrix; see ../README.md. It brings gzip; the other codecs are plugged in, as its documentation says.
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require('kafkajs')
const lz4 = require('lz4js')
const { ZstdCodec } = require('zstd-codec')

const [bootstrap, topic, layout] = process.argv.slice(2)
const group = `${topic}-group`
const T0 = 1700000000000
const WAIT = 30000
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 3 } })
const admin = kafka.admin()
const produced = new Map() // key -> what the record is
let member, consumed

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
})
const zstd = new Promise(done => ZstdCodec.run(all => done(new all.Simple())))
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from((await zstd).compress(encoder.buffer)),
  decompress: async buffer => Buffer.from((await zstd).decompress(buffer)),
})

function check(right, found) {
  if (!right) throw new Error(`found ${JSON.stringify(found)}`)
}

function told(partition, { key, value, timestamp, headers }) {
  const all = Object.entries(headers || {}).map(([name, bytes]) => [name, Buffer.from(bytes).toString('hex')])
  return JSON.stringify([partition, value && value.toString(), String(timestamp), all.sort()])
}

async function send(messages, options = {}, settings = {}) {
  const to = kafka.producer(settings)
  await to.connect()
  const found = await to.send({ topic, acks: -1, messages, ...options })
  await to.disconnect()
  if (!options.topic) for (const m of messages) produced.set(String(m.key), told(m.partition, m))
  return found
}

const message = (partition, key, value, timestamp, headers) => ({ partition, key, value, timestamp: String(timestamp), headers })

// A member or reader: read(count) waits for so many records, which are then taken.
async function consumer(settings, wanted, seek) {
  const of = kafka.consumer({ maxWaitTimeInMs: 500, ...settings })
  const records = []
  let tell = () => {}
  await of.connect()
  await of.subscribe({ topic: wanted, fromBeginning: true })
  if (seek) of.on(of.events.GROUP_JOIN, () => of.seek(seek)) // before it fetches anything
  await of.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      records.push({ partition, message })
      tell()
    },
  })
  const read = count =>
    new Promise((done, fail) => {
      const timer = setTimeout(() => fail(new Error(`only ${records.length} records came`)), WAIT)
      tell = () => {
        if (records.length < count) return
        clearTimeout(timer)
        done(records)
      }
      tell()
    })
  return { of, read }
}

async function createTopic() {
  const configEntries = [{ name: 'retention.ms', value: '-1' }]
  if (layout !== '-') configEntries.push({ name: 'storage.layout', value: layout })
  const topics = [topic, `${topic}.short`, `${topic}.gone`, `${topic}.tx`].map(name => ({
    topic: name,
    numPartitions: name === topic ? 2 : 1,
    replicationFactor: 1,
    configEntries,
  }))
  await admin.createTopics({ topics })
  const metadata = await admin.fetchTopicMetadata({ topics: [topic] })
  check(metadata.topics[0].partitions.length === 2, metadata)
}

const produce = (index, name, compression) => () => {
  const messages = []
  for (let n = 0; n < 10; n++) {
    const key = `${name}-${n}`
    messages.push(message(n % 2, key, `value of ${key} ${'x'.repeat(100)}`, T0 + 1000 * index + n))
  }
  return send(messages, { compression })
}

const nulls = () => send([message(0, null, 'no key', T0 + 5000), message(0, 'tombstone', null, T0 + 5001)])

const headers = () => send([message(0, 'headers', 'headers', T0 + 5002, { text: 'plain', bytes: Buffer.from([0, 255]) })])

async function idempotent() {
  const names = [0, 1, 2, 3, 4].map(n => `idempotent-${n}`)
  await send(names.map((name, n) => message(1, name, name, T0 + 6000 + n)), {}, { idempotent: true, maxInFlightRequests: 1 })
}

async function consumeInGroup() {
  member = await consumer({ groupId: group }, topic)
  consumed = await member.read(produced.size)
  const found = new Map(consumed.map(({ partition, message }) => [String(message.key), told(partition, message)]))
  check(found.size === produced.size, found.size)
  for (const [key, record] of produced) check(found.get(key) === record, [found.get(key), record])
}

const committed = async () => {
  const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
  return new Map(partitions.map(({ partition, offset }) => [partition, BigInt(offset)]))
}

async function commit() {
  const ends = new Map(consumed.map(({ partition, message }) => [partition, BigInt(message.offset) + 1n]))
  await member.of.commitOffsets([...ends].map(([partition, offset]) => ({ topic, partition, offset: String(offset) })))
  await member.of.disconnect()
  const found = await committed()
  for (const [partition, offset] of ends) check(found.get(partition) === offset, String(found.get(partition)))
}

async function lags() {
  const at = await committed()
  const lags = []
  for (const { partition, high } of await admin.fetchTopicOffsets(topic)) lags[partition] = BigInt(high) - at.get(partition)
  return lags
}

async function lag() {
  const before = await lags()
  check(before[0] === 0n && before[1] === 0n, before.map(String))
  await send([message(0, 'late', 'late', T0 + 7000)])
  const after = await lags()
  check(after[0] > 0n && after[1] === 0n, after.map(String))
}

async function seek() {
  const all = await admin.fetchTopicOffsetsByTimestamp(topic, T0 + 2000)
  const { offset } = all.find(({ partition }) => partition === 0)
  const reader = await consumer({ groupId: `${topic}-seek` }, topic, { topic, partition: 0, offset })
  const records = await reader.read(31) // partition 1 has 30
  await reader.of.disconnect()
  const first = records.find(({ partition }) => partition === 0)
  check(String(first.message.key) === 'snappy-0', String(first.message.key))
}

async function listGroups() {
  const { groups } = await admin.listGroups()
  check(groups.some(({ groupId }) => groupId === group), groups)
}

async function alterConfig() {
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
  const configEntries = [{ name: 'max.message.bytes', value: '123456' }, { name: 'retention.ms', value: '-1' }]
  await admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries }] })
  const { resources } = await admin.describeConfigs({ resources: [resource], includeSynonyms: false })
  const value = resources[0].configEntries.find(({ configName }) => configName === 'max.message.bytes').configValue
  check(value === '123456', value)
}

async function deleteRecords() {
  const short = `${topic}.short`
  const messages = []
  for (let n = 0; n < 10; n++) messages.push(message(0, `short-${n}`, '', T0 + n))
  const [{ baseOffset }] = await send(messages, { topic: short })
  const border = String(BigInt(baseOffset) + 5n)
  await admin.fetchTopicOffsets(short) // it finds a partition's leader only in metadata that it has already
  await admin.deleteTopicRecords({ topic: short, partitions: [{ partition: 0, offset: border }] })
  const [{ low }] = await admin.fetchTopicOffsets(short)
  check(low === border, low)
}

async function deleteTopic() {
  await admin.deleteTopics({ topics: [`${topic}.gone`] })
  const topics = await admin.listTopics()
  check(!topics.includes(`${topic}.gone`), topics)
}

async function transaction() {
  const tx = `${topic}.tx`
  const to = kafka.producer({ transactionalId: topic, maxInFlightRequests: 1, idempotent: true })
  await to.connect()
  for (const name of ['aborted', 'committed']) {
    const one = await to.transaction()
    await one.send({ topic: tx, messages: [0, 1, 2].map(n => message(0, `${name}-${n}`, '', T0 + n)) })
    await (name === 'committed' ? one.commit() : one.abort())
  }
  await to.disconnect()
  const reader = await consumer({ groupId: `${topic}-tx`, readUncommitted: false }, tx)
  const keys = (await reader.read(3)).map(({ message }) => String(message.key))
  await reader.of.disconnect()
  check(keys.join() === 'committed-0,committed-1,committed-2', keys)
}

const features = {
  'create topic': createTopic,
  'produce none': produce(0, 'none', CompressionTypes.None),
  'produce gzip': produce(1, 'gzip', CompressionTypes.GZIP),
  'produce snappy': produce(2, 'snappy', CompressionTypes.Snappy),
  'produce lz4': produce(3, 'lz4', CompressionTypes.LZ4),
  'produce zstd': produce(4, 'zstd', CompressionTypes.ZSTD),
  'null key and value': nulls,
  headers,
  'idempotent producer': idempotent,
  'consume in a group': consumeInGroup,
  commit,
  lag,
  'seek by timestamp': seek,
  'list groups': listGroups,
  'alter config': alterConfig,
  'delete records': deleteRecords,
  'delete topic': deleteTopic,
  transaction,
}

async function main() {
  console.log(JSON.stringify({ version: require('kafkajs/package.json').version }))
  await admin.connect()
  for (const [feature, run] of Object.entries(features)) {
    const said = { feature, ok: true }
    try {
      await run()
    } catch (e) {
      Object.assign(said, { ok: false, why: `${e.name}: ${e.message}` })
    }
    console.log(JSON.stringify(said))
  }
  process.exit(0)
}

main()
