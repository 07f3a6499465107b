//! rdkafka (librdkafka) through the matrix; see ../README.md.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::Offset;
use rdkafka::admin::{AdminClient, AdminOptions, AlterConfig, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders, OwnedMessage};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use rdkafka::topic_partition_list::TopicPartitionList;
use serde_json::json;

const T0: i64 = 1_700_000_000_000;
const VERSION: &str = "0.39.0"; // as in Cargo.toml: the crate does not say it
const WAIT: Duration = Duration::from_secs(30);

type Failure = Box<dyn std::error::Error>;
type Outcome = Result<(), Failure>;
type Told = (i32, Option<Vec<u8>>, i64, Vec<(String, Vec<u8>)>);

/// A record to produce: partition, key, value, timestamp, headers.
type Given<'a> = (i32, Option<&'a str>, Option<&'a str>, i64, &'a [(&'a str, &'a [u8])]);

struct Matrix {
    bootstrap: String,
    topic: String,
    layout: String,
    admin: AdminClient<DefaultClientContext>,
    produced: HashMap<Option<Vec<u8>>, Told>,
    member: Option<BaseConsumer>,
}

fn check(right: bool, found: impl std::fmt::Debug) -> Outcome {
    if right { Ok(()) } else { Err(format!("found {found:?}").into()) }
}

fn config(bootstrap: &str, more: &[(&str, &str)]) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    for (name, value) in more {
        config.set(*name, *value);
    }
    config
}

fn told(m: &OwnedMessage) -> Told {
    let headers = m.headers().map(|all| all.iter().map(|h| (h.key.into(), h.value.unwrap_or_default().to_vec())).collect());
    (m.partition(), m.payload().map(<[u8]>::to_vec), m.timestamp().to_millis().unwrap_or(-1), headers.unwrap_or_default())
}

fn poll(of: &BaseConsumer, count: usize) -> Result<Vec<OwnedMessage>, Failure> {
    let (mut found, end) = (Vec::new(), Instant::now() + WAIT);
    while found.len() < count && Instant::now() < end {
        if let Some(message) = of.poll(Duration::from_millis(100)) {
            found.push(message?.detach());
        }
    }
    Ok(found)
}

fn keys(messages: &[OwnedMessage]) -> Vec<String> {
    messages.iter().map(|m| String::from_utf8_lossy(m.key().unwrap_or_default()).into()).collect()
}

impl Matrix {
    fn group(&self) -> String {
        format!("{}-group", self.topic)
    }

    fn consumer(&self, more: &[(&str, &str)]) -> Result<BaseConsumer, Failure> {
        let mut all = config(&self.bootstrap, &[("auto.offset.reset", "earliest"), ("enable.auto.commit", "false")]);
        all.set("group.id", format!("{}-other", self.topic));
        for (name, value) in more {
            all.set(*name, *value);
        }
        Ok(all.create()?)
    }

    async fn send(&mut self, topic: &str, records: &[Given<'_>], more: &[(&str, &str)]) -> Result<Vec<i64>, Failure> {
        let to: FutureProducer = config(&self.bootstrap, &[&[("acks", "all")], more].concat()).create()?;
        let mut offsets = Vec::new();
        for (partition, key, value, timestamp, headers) in records {
            let mut record = FutureRecord::<str, str>::to(topic).partition(*partition).timestamp(*timestamp);
            record.key = *key;
            record.payload = *value;
            if !headers.is_empty() {
                let all = headers.iter().fold(OwnedHeaders::new(), |all, (key, value)| {
                    all.insert(Header { key, value: Some(*value) })
                });
                record = record.headers(all);
            }
            offsets.push(to.send(record, WAIT).await.map_err(|(e, _)| e)?.offset);
            if topic == self.topic {
                let headers = headers.iter().map(|(name, bytes)| (name.to_string(), bytes.to_vec())).collect();
                let bytes = |text: &str| text.as_bytes().to_vec();
                self.produced.insert(key.map(bytes), (*partition, value.map(bytes), *timestamp, headers));
            }
        }
        Ok(offsets)
    }

    async fn create_topic(&mut self) -> Outcome {
        let names = ["", ".short", ".gone", ".tx"].map(|end| format!("{}{end}", self.topic));
        let topics = names.iter().map(|name| {
            let partitions = if *name == self.topic { 2 } else { 1 };
            let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1)).set("retention.ms", "-1");
            if self.layout == "-" { topic } else { topic.set("storage.layout", &self.layout) }
        });
        let topics: Vec<_> = topics.collect();
        for made in self.admin.create_topics(&topics, &AdminOptions::new()).await? {
            made.map_err(|(name, code)| format!("{name}: {code}"))?;
        }
        let metadata = self.admin.inner().fetch_metadata(Some(&self.topic), WAIT)?;
        check(metadata.topics()[0].partitions().len() == 2, metadata.topics()[0].name())
    }

    async fn produce(&mut self, index: i64, codec: &str) -> Outcome {
        let names: Vec<_> = (0..10).map(|n| format!("{codec}-{n}")).collect();
        let values: Vec<_> = names.iter().map(|name| format!("value of {name} {}", "x".repeat(100))).collect();
        let records: Vec<Given> = (0..10)
            .map(|n| (n as i32 % 2, Some(names[n].as_str()), Some(values[n].as_str()), T0 + 1000 * index + n as i64, &[][..]))
            .collect();
        let topic = self.topic.clone();
        self.send(&topic, &records, &[("compression.type", codec)]).await.map(|_| ())
    }

    async fn produce_to_topic(&mut self, records: &[Given<'_>], more: &[(&str, &str)]) -> Outcome {
        let topic = self.topic.clone();
        self.send(&topic, records, more).await.map(|_| ())
    }

    async fn idempotent(&mut self) -> Outcome {
        let names: Vec<_> = (0..5).map(|n| format!("idempotent-{n}")).collect();
        let records: Vec<Given> =
            names.iter().zip(0..).map(|(name, n)| (1, Some(name.as_str()), Some(name.as_str()), T0 + 6000 + n, &[][..])).collect();
        self.produce_to_topic(&records, &[("enable.idempotence", "true")]).await
    }

    fn consume_in_group(&mut self) -> Outcome {
        let member = self.consumer(&[("group.id", &self.group())])?;
        member.subscribe(&[&self.topic])?;
        let found: HashMap<_, _> =
            poll(&member, self.produced.len())?.iter().map(|m| (m.key().map(<[u8]>::to_vec), told(m))).collect();
        self.member = Some(member);
        check(found == self.produced, found.len())
    }

    fn both(&self) -> TopicPartitionList {
        let mut both = TopicPartitionList::new();
        both.add_partition_range(&self.topic, 0, 1);
        both
    }

    fn committed(&self) -> Result<Vec<i64>, Failure> {
        let other = self.consumer(&[("group.id", &self.group())])?;
        let found = other.committed_offsets(self.both(), WAIT)?;
        Ok(found.elements().iter().map(|p| p.offset().to_raw().unwrap_or(-1)).collect())
    }

    fn commit(&mut self) -> Outcome {
        let member = self.member.take().ok_or("it is in no group")?;
        member.commit_consumer_state(CommitMode::Sync)?;
        let mut positions: Vec<_> =
            member.position()?.elements().iter().map(|p| (p.partition(), p.offset().to_raw().unwrap_or(-1))).collect();
        drop(member);
        positions.sort();
        let committed = self.committed()?;
        check(committed == positions.iter().map(|(_, offset)| *offset).collect::<Vec<_>>(), committed)
    }

    fn lags(&self) -> Result<Vec<i64>, Failure> {
        let committed = self.committed()?;
        let client = self.admin.inner();
        let end = |p: usize| client.fetch_watermarks(&self.topic, p as i32, WAIT).map(|(_, high)| high - committed[p]);
        Ok(vec![end(0)?, end(1)?])
    }

    async fn lag(&mut self) -> Outcome {
        let before = self.lags()?;
        check(before == [0, 0], before)?;
        self.produce_to_topic(&[(0, Some("late"), Some("late"), T0 + 7000, &[])], &[]).await?;
        let after = self.lags()?;
        check(after[0] > 0 && after[1] == 0, after)
    }

    fn seek(&self) -> Outcome {
        let reader = self.consumer(&[])?;
        let mut asked = TopicPartitionList::new();
        asked.add_partition_offset(&self.topic, 0, Offset::Offset(T0 + 2000))?;
        reader.assign(&reader.offsets_for_times(asked, WAIT)?)?;
        let found = keys(&poll(&reader, 1)?);
        check(found == ["snappy-0"], found)
    }

    fn list_groups(&self) -> Outcome {
        let all = self.admin.inner().fetch_group_list(None, WAIT)?;
        let names: Vec<_> = all.groups().iter().map(|g| g.name().to_string()).collect();
        check(names.contains(&self.group()), names)
    }

    async fn alter_config(&self) -> Outcome {
        let resource = ResourceSpecifier::Topic(&self.topic);
        let mut change = AlterConfig::new(resource).set("max.message.bytes", "123456").set("retention.ms", "-1");
        if self.layout != "-" {
            change = change.set("storage.layout", &self.layout); // AlterConfigs sets all of them
        }
        for done in self.admin.alter_configs(&[change], &AdminOptions::new()).await? {
            done.map_err(|(_, code)| code)?;
        }
        let found = self.admin.describe_configs(&[resource], &AdminOptions::new()).await?.remove(0)?;
        let value = found.get("max.message.bytes").and_then(|entry| entry.value.clone());
        check(value.as_deref() == Some("123456"), value)
    }

    async fn delete_records(&mut self) -> Outcome {
        let short = format!("{}.short", self.topic);
        let names: Vec<_> = (0..10).map(|n| format!("short-{n}")).collect();
        let records: Vec<Given> = names.iter().zip(0..).map(|(name, n)| (0, Some(name.as_str()), Some(""), T0 + n, &[][..])).collect();
        let border = self.send(&short, &records, &[]).await?[5];
        let mut before = TopicPartitionList::new();
        before.add_partition_offset(&short, 0, Offset::Offset(border))?;
        self.admin.delete_records(&before, &AdminOptions::new()).await?;
        let (start, _) = self.admin.inner().fetch_watermarks(&short, 0, WAIT)?;
        check(start == border, start)
    }

    async fn delete_topic(&self) -> Outcome {
        let gone = format!("{}.gone", self.topic);
        for done in self.admin.delete_topics(&[&gone], &AdminOptions::new()).await? {
            done.map_err(|(_, code)| code)?;
        }
        let metadata = self.admin.inner().fetch_metadata(None, WAIT)?;
        check(metadata.topics().iter().all(|t| t.name() != gone), gone)
    }

    async fn transaction(&self) -> Outcome {
        let tx = format!("{}.tx", self.topic);
        let to: FutureProducer = config(&self.bootstrap, &[("transactional.id", &self.topic)]).create()?;
        to.init_transactions(WAIT)?;
        for name in ["aborted", "committed"] {
            to.begin_transaction()?;
            for n in 0..3 {
                let key = format!("{name}-{n}");
                let record = FutureRecord::to(&tx).partition(0).key(&key).payload("").timestamp(T0 + n);
                to.send(record, WAIT).await.map_err(|(e, _)| e)?;
            }
            if name == "committed" { to.commit_transaction(WAIT)? } else { to.abort_transaction(WAIT)? }
        }
        let reader = self.consumer(&[("isolation.level", "read_committed")])?;
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(&tx, 0, Offset::Beginning)?;
        reader.assign(&from)?;
        let found = keys(&poll(&reader, 3)?);
        check(found == ["committed-0", "committed-1", "committed-2"], found)
    }

    async fn run(&mut self, feature: &str) -> Outcome {
        match feature {
            "create topic" => self.create_topic().await,
            "produce none" => self.produce(0, "none").await,
            "produce gzip" => self.produce(1, "gzip").await,
            "produce snappy" => self.produce(2, "snappy").await,
            "produce lz4" => self.produce(3, "lz4").await,
            "produce zstd" => self.produce(4, "zstd").await,
            "null key and value" => {
                let (one, two) = ((0, None, Some("no key"), T0 + 5000, &[][..]), (0, Some("tombstone"), None, T0 + 5001, &[][..]));
                self.produce_to_topic(&[one, two], &[]).await
            }
            "headers" => {
                let headers: &[(&str, &[u8])] = &[("text", b"plain"), ("bytes", &[0, 255])];
                self.produce_to_topic(&[(0, Some("headers"), Some("headers"), T0 + 5002, headers)], &[]).await
            }
            "idempotent producer" => self.idempotent().await,
            "consume in a group" => self.consume_in_group(),
            "commit" => self.commit(),
            "lag" => self.lag().await,
            "seek by timestamp" => self.seek(),
            "list groups" => self.list_groups(),
            "alter config" => self.alter_config().await,
            "delete records" => self.delete_records().await,
            "delete topic" => self.delete_topic().await,
            _ => self.transaction().await,
        }
    }
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let (bootstrap, topic, layout) = (arguments.next().unwrap(), arguments.next().unwrap(), arguments.next().unwrap());
    let admin = config(&bootstrap, &[]).create().unwrap();
    let mut matrix = Matrix { bootstrap, topic, layout, admin, produced: HashMap::new(), member: None };
    println!("{}", json!({"version": VERSION}));
    for feature in [
        "create topic", "produce none", "produce gzip", "produce snappy", "produce lz4", "produce zstd", "null key and value",
        "headers", "idempotent producer", "consume in a group", "commit", "lag", "seek by timestamp", "list groups",
        "alter config", "delete records", "delete topic", "transaction",
    ] {
        let line = match matrix.run(feature).await {
            Ok(()) => json!({"feature": feature, "ok": true}),
            Err(e) => json!({"feature": feature, "ok": false, "why": e.to_string()}),
        };
        println!("{line}");
    }
}
