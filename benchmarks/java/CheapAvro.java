import java.io.ByteArrayOutputStream;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.storage.Converter;

/**
 * Avro as Confluent frames it, written from Connect's values without an Avro library and without a
 * registry: the least that a converter can cost, in favour of Debezium. The schema id is always 1.
 */
public class CheapAvro implements Converter {
    private static final byte[] FRAME = {0, 0, 0, 0, 1};
    private final ByteArrayOutputStream out = new ByteArrayOutputStream(4096);

    @Override
    public void configure(Map<String, ?> settings, boolean isKey) {}

    @Override
    public byte[] fromConnectData(String topic, Schema schema, Object value) {
        if (value == null) {
            return null;
        }
        out.reset();
        out.write(FRAME, 0, FRAME.length);
        write(schema, value);
        return out.toByteArray();
    }

    @Override
    public SchemaAndValue toConnectData(String topic, byte[] value) {
        return SchemaAndValue.NULL;
    }

    private void write(Schema schema, Object value) {
        if (schema.isOptional()) {
            if (value == null) {
                out.write(0);
                return;
            }
            out.write(2);
        }
        switch (schema.type()) {
            case STRUCT -> {
                Struct struct = (Struct) value;
                for (Field field : schema.fields()) {
                    write(field.schema(), struct.get(field));
                }
            }
            case STRING -> bytes(((String) value).getBytes(StandardCharsets.UTF_8));
            case INT8, INT16, INT32, INT64 ->
                integer(
                    value instanceof Number n ? n.longValue() : ((java.util.Date) value).getTime());
            case BOOLEAN -> out.write((Boolean) value ? 1 : 0);
            case FLOAT32 -> fixed(Float.floatToIntBits((Float) value), 4);
            case FLOAT64 -> fixed(Double.doubleToLongBits((Double) value), 8);
            case BYTES ->
                bytes(
                    value instanceof BigDecimal decimal
                        ? decimal.unscaledValue().toByteArray()
                        : value instanceof ByteBuffer buffer ? buffer.array() : (byte[]) value);
            case ARRAY -> {
                List<?> list = (List<?>) value;
                if (!list.isEmpty()) {
                    integer(list.size());
                    for (Object item : list) {
                        write(schema.valueSchema(), item);
                    }
                }
                out.write(0);
            }
            default -> throw new IllegalArgumentException("type " + schema.type());
        }
    }

    private void bytes(byte[] value) {
        integer(value.length);
        out.write(value, 0, value.length);
    }

    private void fixed(long bits, int size) {
        for (int at = 0; at < size; at++) {
            out.write((int) (bits >> 8 * at));
        }
    }

    private void integer(long value) {
        long left = value << 1 ^ value >> 63;
        while ((left & ~0x7FL) != 0) {
            out.write((int) (left & 0x7F | 0x80));
            left >>>= 7;
        }
        out.write((int) left);
    }
}
