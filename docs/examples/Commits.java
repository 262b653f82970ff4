import java.io.IOException;
import java.io.PrintStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.avro.Conversions;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.DecoderFactory;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Prints a source's transactions, whole and in commit order, one JSON object a line.
 *
 * <p>java -cp "jars/*" Commits.java localhost:9092 http://localhost:8081 bank
 *
 * <p>It is commits.py in Java, with the same simplifications, and always from the beginning.
 */
public final class Commits {
    private static final GenericData AVRO = new GenericData();
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static final ObjectMapper JSON = new ObjectMapper();

    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final String registry;
    private final Map<Integer, Schema> schemas = new HashMap<>();
    private final KafkaConsumer<byte[], byte[]> cuts;
    private final KafkaConsumer<byte[], byte[]> rows;

    private Commits(String bootstrap, String registry) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap,
                "isolation.level", "read_committed",
                "auto.offset.reset", "none", // rows that have expired are an error, never skipped
                "fetch.max.wait.ms", 50);
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        this.registry = registry;
        this.cuts = new KafkaConsumer<>(settings, bytes, bytes);
        this.rows = new KafkaConsumer<>(settings, bytes, bytes);
    }

    public static void main(String[] args) throws IOException, InterruptedException {
        AVRO.addLogicalTypeConversion(new Conversions.DecimalConversion());
        new Commits(args[0], args[1]).follow(args[2]);
    }

    private void follow(String prefix) throws IOException, InterruptedException {
        List<TopicPartition> log = List.of(new TopicPartition(prefix + ".cuts", 0));
        cuts.assign(log);
        cuts.seekToBeginning(log);
        GenericRecord known = null; // the last record that counted
        while (true) {
            for (ConsumerRecord<byte[], byte[]> message : cuts.poll(Duration.ofSeconds(1))) {
                if (!Arrays.equals(message.key(), prefix.getBytes())) {
                    continue; // not written by gauss-cdc
                }
                GenericRecord cut = decode(message);
                if (!isAccepted(cut, known)) {
                    continue;
                }
                if (known != null && kind(cut).equals("COMMITS")) {
                    print(cut, number(known, "last_seq"));
                }
                known = cut;
            }
        }
    }

    /** Says whether a record counts, `known` being the last that did; throws if one is missing. */
    private static boolean isAccepted(GenericRecord cut, GenericRecord known) {
        if ((Integer) cut.get("version") > 4) {
            throw new IllegalStateException("a newer release wrote these cuts");
        }
        if (known == null) { // the log may begin anywhere: wait for a record that says who writes
            return Set.of("START", "STATE").contains(kind(cut));
        }
        boolean isStart = kind(cut).equals("START");
        boolean isSame = cut.get("instance").equals(known.get("instance"));
        if (isStart && Boolean.FALSE.equals(cut.get("continues"))
                && number(cut, "epoch") > number(known, "epoch")) {
            return true; // another history: all tables are loaded again, whatever came before
        }
        if (number(cut, "writer") <= number(known, "writer") && (isStart || !isSame)) {
            return false; // of a producer that another one has taken over from
        }
        boolean isKnown = isStart || isSame; // else the START of this producer is missing
        if (isKnown && kind(cut).equals("COMMITS")
                && number(cut, "last_seq") <= number(known, "last_seq")) {
            return false; // named again after a takeover: nothing in it is new
        }
        // HEARTBEAT and STATE repeat n
        int step = Set.of("START", "COMMITS", "TABLE").contains(kind(cut)) ? 1 : 0;
        if (!isKnown || number(cut, "n") != number(known, "n") + step) {
            throw new IllegalStateException("cuts are missing behind n = " + known.get("n"));
        }
        return true;
    }

    /** Prints the transactions of a COMMITS record that come behind seq `known`. */
    private void print(GenericRecord cut, long known) throws IOException, InterruptedException {
        Map<Long, TreeMap<Long, String>> found = new HashMap<>(); // seq -> ordinal -> change
        for (ConsumerRecord<byte[], byte[]> message : read(records(cut, "ranges"))) {
            if (message.value() == null) {
                continue; // a tombstone behind a delete, which is no row
            }
            String position = new String(message.headers().lastHeader("position").value());
            String[] parts = position.split("/"); // epoch, seq, ordinal
            found.computeIfAbsent(Long.valueOf(parts[1]), seq -> new TreeMap<>())
                    .put(Long.valueOf(parts[2]), AVRO.toString(decode(message)));
        }
        for (GenericRecord commit : records(cut, "commits")) {
            TreeMap<Long, String> changes =
                    found.getOrDefault(number(commit, "seq"), new TreeMap<>());
            long count = number(commit, "rows");
            if (changes.size() != count || (count > 0 && changes.lastKey() != count - 1)) {
                throw new IllegalStateException(AVRO.toString(commit) + " is not complete");
            }
            if (number(commit, "seq") > known) {
                out.printf("{\"epoch\": %s, \"commit\": %s, \"changes\": [%s]}%n",
                        cut.get("epoch"), AVRO.toString(commit),
                        String.join(", ", changes.values()));
            }
        }
    }

    /** Reads exactly these offsets; a cut may be visible a moment before its rows. */
    private List<ConsumerRecord<byte[], byte[]>> read(List<GenericRecord> ranges) {
        Map<TopicPartition, Set<Long>> wanted = new HashMap<>();
        long missing = 0;
        for (GenericRecord range : ranges) {
            TopicPartition place = new TopicPartition(
                    range.get("topic").toString(), (Integer) range.get("partition"));
            Set<Long> offsets = wanted.computeIfAbsent(place, p -> new HashSet<>());
            for (long at = number(range, "start"); at < number(range, "end"); at++) {
                offsets.add(at);
                missing++;
            }
        }
        rows.assign(wanted.keySet());
        wanted.forEach((place, offsets) -> rows.seek(place, offsets.stream().min(Long::compare).get()));
        List<ConsumerRecord<byte[], byte[]>> out = new ArrayList<>();
        while (out.size() < missing) {
            for (ConsumerRecord<byte[], byte[]> message : rows.poll(Duration.ofSeconds(1))) {
                TopicPartition place = new TopicPartition(message.topic(), message.partition());
                if (wanted.get(place).contains(message.offset())) {
                    out.add(message);
                }
            }
        }
        return out;
    }

    /** Decodes a value by the schema that it names: a zero, the schema's id, Avro. */
    private GenericRecord decode(ConsumerRecord<byte[], byte[]> message)
            throws IOException, InterruptedException {
        ByteBuffer value = ByteBuffer.wrap(message.value());
        value.get();
        int id = value.getInt();
        Schema schema = schemas.get(id);
        if (schema == null) {
            URI uri = URI.create(registry + "/schemas/ids/" + id);
            HttpResponse<String> answer = HTTP.send(
                    HttpRequest.newBuilder(uri).build(), HttpResponse.BodyHandlers.ofString());
            if (answer.statusCode() != 200) {
                throw new IOException(uri + ": " + answer.statusCode() + ' ' + answer.body());
            }
            String text = JSON.readTree(answer.body()).get("schema").asText();
            schema = new Schema.Parser().parse(text);
            schemas.put(id, schema);
        }
        return new GenericDatumReader<GenericRecord>(schema, schema, AVRO)
                .read(null, DecoderFactory.get().binaryDecoder(message.value(), 5,
                        message.value().length - 5, null));
    }

    @SuppressWarnings("unchecked")
    private static List<GenericRecord> records(GenericRecord record, String name) {
        return (List<GenericRecord>) record.get(name);
    }

    private static String kind(GenericRecord cut) {
        return cut.get("kind").toString();
    }

    private static long number(GenericRecord record, String name) {
        return (Long) record.get(name);
    }
}
