package ketch;

import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.ShareGroupDescription;
import org.apache.kafka.common.TopicPartition;

/** What Java's AdminClient makes of a share group without members: alters, lists and deletes its offsets, and it. */
public final class ShareAdmin {
    private ShareAdmin() {}

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        String group = arguments[1];
        TopicPartition partition = new TopicPartition(arguments[2], 0);
        try (Admin admin = Admin.create(properties)) {
            ShareGroupDescription shown = admin.describeShareGroups(List.of(group)).all().get().get(group);
            System.out.println("described " + shown.groupState() + " " + shown.members().size());
            admin.alterShareGroupOffsets(group, Map.of(partition, Long.parseLong(arguments[3]))).all().get();
            System.out.println("altered " + offsets(admin, group));
            admin.deleteShareGroupOffsets(group, java.util.Set.of(arguments[2])).all().get();
            System.out.println("forgotten " + offsets(admin, group));
            admin.deleteShareGroups(List.of(group)).all().get();
            System.out.println("groups " + admin.listGroups().all().get().size());
        }
    }

    private static Map<String, Long> offsets(Admin admin, String group) throws Exception {
        var found = admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec()));
        Map<String, Long> shown = new TreeMap<>();
        found.partitionsToOffsetAndMetadata(group).get().forEach(
                (partition, at) -> shown.put(partition.toString(), at == null ? null : at.offset()));
        return shown;
    }
}
