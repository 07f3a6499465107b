// A producer on KafkaJS in the middle of a transaction; see tests/clients/test_zombie.py.
'use strict'

const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, transactionalId, topic, partitions] = process.argv.slice(2)
const FLUSHED_FIRST = 100
const FENCED = ['PRODUCER_FENCED', 'INVALID_PRODUCER_EPOCH'] // the second before KIP-588
const say = line => process.stdout.write(line + '\n')
const pause = ms => new Promise(resolve => setTimeout(resolve, ms))

async function main() {
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING })
  const producer = kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })
  let ended = false
  process.stdin.resume()
  process.stdin.on('end', () => { ended = true })
  await producer.connect()
  const transaction = await producer.transaction()
  try {
    for (let count = 0; !ended; count++) {
      const message = { partition: count % Number(partitions), value: `${transactionalId} ${count}` }
      await transaction.send({ topic, messages: [message] })
      if (count === FLUSHED_FIRST) say('open')
      await pause(2)
    }
    await transaction.commit()
    say('committed')
  } catch (error) {
    const types = [error.type, error.cause && error.cause.type]
    say(types.some(type => FENCED.includes(type)) ? 'fenced' : String(error))
  }
}

main().then(() => process.exit(0), error => {
  console.error(error)
  process.exit(1)
})
