// KafkaJS logs in as it is told, writes and reads; see ../README.md.
const { readFileSync } = require('fs')
const { createInterface } = require('readline')
const { Kafka, logLevel } = require('kafkajs')

const WAIT = 20000
const sessions = new Map()

function options({ mechanism, client, bootstrap, user, password, token, ca, own }) {
  const ssl = { ca: [readFileSync(ca)] }
  if (own) Object.assign(ssl, { key: readFileSync(own), cert: readFileSync(own) })
  const retry = { retries: 2, initialRetryTime: 100 }
  // It logs in again when so much is left of a session: by default 10 s, which a short one never has.
  const common = { clientId: client, brokers: [bootstrap], ssl, logLevel: logLevel.NOTHING, retry, reauthenticationThreshold: 500 }
  if (own) return common
  if (mechanism === 'OAUTHBEARER') {
    return { ...common, sasl: { mechanism: 'oauthbearer', oauthBearerProvider: async () => ({ value: token }) } }
  }
  return { ...common, sasl: { mechanism: mechanism.toLowerCase(), username: user, password } }
}

async function write({ session, login, topic, value }) {
  if (!sessions.has(session)) {
    const made = new Kafka(options(login)).producer()
    await made.connect()
    sessions.set(session, made)
  }
  await sessions.get(session).send({ topic, acks: -1, messages: [{ value }] })
  return { ok: true }
}

async function member({ login, topic, group }) {
  const of = new Kafka(options(login)).consumer({ groupId: group, maxWaitTimeInMs: 500, allowAutoTopicCreation: false })
  const values = []
  const read = { of, values, disconnect: () => of.disconnect() }
  of.on(of.events.CRASH, ({ payload }) => (read.error = payload.error))
  await of.connect()
  await of.subscribe({ topic, fromBeginning: true })
  await of.run({ eachMessage: async ({ message }) => void values.push(String(message.value)) })
  return read
}

async function read(order) {
  const { session, count } = order
  if (!sessions.has(session)) sessions.set(session, await member(order))
  const found = sessions.get(session)
  for (const end = Date.now() + WAIT; found.values.length < count && Date.now() < end && !found.error; ) {
    await new Promise(done => setTimeout(done, 20))
  }
  if (found.error) throw found.error
  return { values: found.values.splice(0) }
}

async function close({ session }) {
  if (sessions.has(session)) await sessions.get(session).disconnect()
  sessions.delete(session)
  return { ok: true }
}

const say = answer => console.log(JSON.stringify(answer))

// The error that its retries hide says what it was.
const cause = error => (error.name === 'KafkaJSNumberOfRetriesExceeded' && error.cause ? error.cause : error)

async function main() {
  say({ version: require('kafkajs/package.json').version })
  for await (const line of createInterface({ input: process.stdin })) {
    const order = JSON.parse(line)
    try {
      say(await { write, read, close }[order.do](order))
    } catch (error) {
      const { name, type, message } = cause(error)
      say({ error: type || name, message })
    }
  }
  process.exit(0)
}

main()
