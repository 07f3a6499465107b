// The npm package kafka 0.2.3, of the time of Kafka 0.6, against the legacy port.
//
//   node client.js produce PORT TOPIC PARTITION MESSAGE...
//   node client.js consume PORT TOPIC PARTITION OFFSET COUNT   prints each message and the offset behind it, as JSON
//   node client.js offsets PORT TOPIC PARTITION                prints the newest offset
const kafka = require('kafka')

const [what, port, topic, partition, ...rest] = process.argv.slice(2)
const options = { host: '127.0.0.1', port: Number(port), topic: topic, partition: Number(partition), pollInterval: 20 }

if (what === 'produce') {
  const producer = new kafka.Producer(options)
  producer.connect(() => {
    producer.send(rest, topic, Number(partition))
    producer.close()
  })
} else if (what === 'consume') {
  const consumer = new kafka.Consumer(options)
  let left = Number(rest[1])
  consumer.on('message', (name, message, offset) => {
    console.log(JSON.stringify([message, offset]))
    if (--left === 0) process.exit(0)
  })
  consumer.on('error', (error) => {
    console.error(error)
    process.exit(1)
  })
  consumer.connect(() => {
    consumer.subscribeTopic({ name: topic, partition: Number(partition), offset: Number(rest[0]) })
  })
} else {
  const client = new kafka.Client(options)
  client.on('offset', (name, offset) => console.log(offset))
  client.on('lastoffset', () => client.close())
  client.connect(() => client.fetchOffsets({ name: topic, partition: Number(partition) }))
}
