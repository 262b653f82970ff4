# As the entry of the image `apache/kafka`: KAFKA_LOG_DIRS is log.dirs of its properties.
set -e
properties=/tmp/server.properties
env | sed -n 's/^KAFKA_\([A-Z_]*\)=/\1=/p' | while IFS='=' read -r name value; do
    echo "$(echo "$name" | tr 'A-Z_' 'a-z.')=$value"
done >"$properties"
: "${KAFKA_LOG_DIRS:=/tmp/kraft-logs}"
grep -q '^log.dirs=' "$properties" || echo "log.dirs=$KAFKA_LOG_DIRS" >>"$properties"
if [ ! -s "$KAFKA_LOG_DIRS/meta.properties" ]; then
    java -cp '/opt/kafka/libs/*' kafka.tools.StorageTool format \
        -t "${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}" -c "$properties"
fi
exec java -Xmx384m -cp '/opt/kafka/libs/*' kafka.Kafka "$properties"
