// A group member on KafkaJS; see tests/support/members.py.
'use strict'

const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, groupId, topic] = process.argv.slice(2)
const say = (verb, words = []) => process.stdout.write([verb, ...words].join(' ') + '\n')

async function main() {
  const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.ERROR })
  const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 300, maxWaitTimeInMs: 100 })
  let owned = []
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    say('revoked', owned)
    owned = payload.memberAssignment[topic] || []
    say('assigned', owned)
  })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatchAutoResolve: false,
    eachBatch: async ({ batch, resolveOffset }) => {
      const last = batch.lastOffset()
      say('read', batch.messages.map(m => `${batch.partition}:${m.value}`))
      await consumer.commitOffsets([{ topic, partition: batch.partition, offset: (BigInt(last) + 1n).toString() }])
      resolveOffset(last)
      say('committed')
    },
  })
  process.stdin.resume()
  await new Promise(resolve => process.stdin.on('end', resolve))
  await consumer.disconnect()
}

main().then(() => process.exit(0), error => {
  console.error(error)
  process.exit(1)
})
