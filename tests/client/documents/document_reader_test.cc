// Files to documents: what each kind of file gives, and what is wrong with some of them.
#include "client/documents/document_reader.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"

#include "client/documents/input_paths.h"
#include "tests/support/file_bytes.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DocumentReaderTest : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& bytes) {
    const std::filesystem::path path = PathOf(name);
    std::filesystem::create_directories(path.parent_path());
    WriteFileBytes(path, bytes);
  }
  std::string PathOf(const std::string& name) const { return folder_.path() + "/" + name; }

  std::vector<Document> Read(const std::vector<std::string>& patterns,
                             const std::string& id_field = "") {
    std::vector<std::string> paths;
    for (const std::string& pattern : patterns) {
      paths.push_back(PathOf(pattern));
    }
    const absl::StatusOr<std::vector<InputPath>> inputs = FindInputs(paths);
    EXPECT_OK(inputs);
    std::vector<Document> documents;
    DocumentReader reader(*inputs, id_field);
    while (const std::optional<Document> document = reader.Next()) {
      documents.push_back(*document);
    }
    return documents;
  }

  // "id: name=value name=value" or "id! code: message", one a document.
  std::vector<std::string> Told(const std::vector<Document>& documents) {
    std::vector<std::string> told;
    for (const Document& document : documents) {
      if (document.error.has_value()) {
        told.push_back(absl::StrCat(document.id, "! ", document.error->code, ": ",
                                    document.error->message));
        continue;
      }
      std::string& text = told.emplace_back(absl::StrCat(document.id, ":"));
      for (const DocumentField& field : document.fields) {
        absl::StrAppend(&text, " ", field.name, "=", field.value);
      }
    }
    return told;
  }

  TemporaryFolder folder_;
};

TEST_F(DocumentReaderTest, ATextFileIsADocumentWithoutItsByteOrderMark) {
  Write("in/b.txt", "\xEF\xBB\xBFsecond\n");
  Write("in/a.txt", "first {{text}} <|im_end|>");
  EXPECT_THAT(Told(Read({"in/*.txt"})),
              ElementsAre("a.txt: text=first {{text}} <|im_end|> file=a.txt id=a.txt",
                          "b.txt: text=second\n file=b.txt id=b.txt"));
}

TEST_F(DocumentReaderTest, FilesThatAreNoTextAreErrorsByNameAndTheOthersAreRead) {
  Write("in/a_utf16.txt", std::string("\xFF\xFEh\0i\0", 6));
  Write("in/b_nul.txt", std::string("text\0text", 9));
  Write("in/c_latin.txt", "caf\xE9");
  Write("in/d_blank.txt", " \n\t\n");
  Write("in/e_large.txt", std::string(kMaxDocumentBytes + 1, 'x'));
  std::filesystem::create_directories(PathOf("in/f_folder.txt"));
  std::filesystem::create_symlink(PathOf("gone"), PathOf("in/g_dangling.txt"));
  ASSERT_EQ(mkfifo(PathOf("in/h_pipe.txt").c_str(), 0600), 0);
  Write("in/i_good.txt", "text");
  EXPECT_THAT(
      Told(Read({"in/*.txt"})),
      ElementsAre("a_utf16.txt! document_not_text: a_utf16.txt: is UTF-16; make it UTF-8",
                  HasSubstr("b_nul.txt! document_not_text: b_nul.txt: has a NUL at byte 4"),
                  HasSubstr("c_latin.txt! document_not_text: c_latin.txt: is not UTF-8 at byte 3"),
                  "d_blank.txt! document_empty: d_blank.txt: has no text",
                  "e_large.txt! document_too_large: e_large.txt: has 3145729 bytes, at most "
                  "3145728",
                  HasSubstr("f_folder.txt! document_unreadable: open "),
                  HasSubstr("No such file"), HasSubstr("is no file"),
                  "i_good.txt: text=text file=i_good.txt id=i_good.txt"));
}

TEST_F(DocumentReaderTest, ACsvRecordHasItsColumns) {
  Write("t.csv",
        "\xEF\xBB\xBFtitle, body\r\n\"a, \"\"b\"\"\",\"two\nlines\"\r\n\r\nplain,\nlast,\"end\"");
  EXPECT_THAT(Told(Read({"t.csv"})),
              ElementsAre("t.csv:2: title=a, \"b\" body=two\nlines file=t.csv id=t.csv:2",
                          "t.csv:5: title=plain body= file=t.csv id=t.csv:5",
                          "t.csv:6: title=last body=end file=t.csv id=t.csv:6"));
}

TEST_F(DocumentReaderTest, AMalformedCsvRecordIsAnErrorWithItsLine) {
  Write("t.csv", "a,b\n1,2,3\n4\nx\"y,1\n\"z\"z,\"1\n5,6\n\"7\",8\n\"open,9\n");
  const std::vector<std::string> told = Told(Read({"t.csv"}));
  EXPECT_THAT(
      told,
      ElementsAre("t.csv:2! document_malformed: t.csv: line 2: has 3 fields, the header 2",
                  "t.csv:3! document_malformed: t.csv: line 3: has 1 fields, the header 2",
                  HasSubstr("t.csv: line 4: field 1 has a quote but does not begin with one"),
                  HasSubstr("t.csv: line 5: field 1 goes on behind its end"),
                  "t.csv:6: a=5 b=6 file=t.csv id=t.csv:6", "t.csv:7: a=7 b=8 file=t.csv id=t.csv:7",
                  "t.csv:8! document_malformed: t.csv: line 8: the quote that opens here is not "
                  "closed"));
}

TEST_F(DocumentReaderTest, AFieldThatIsTooLargeSpoilsItsRecordAlone) {
  Write("t.csv", "a,b\n\"" + std::string(kMaxDocumentBytes + 5, '\n') + "\",\"x\ny\"\n1,2\n");
  EXPECT_THAT(Told(Read({"t.csv"})),
              ElementsAre(HasSubstr("t.csv:2! document_malformed: t.csv: line 2: field 1 has more "
                                    "than 3145728 bytes"),
                          HasSubstr(": a=1 b=2 ")));
}

TEST_F(DocumentReaderTest, AHeaderThatNamesNothingSpoilsItsFileAlone) {
  Write("a.csv", "x,x\n1,2\n");
  Write("b.csv", "");
  Write("c.csv", "x,\n1,2\n");
  Write("d.csv", "x\n1\n");
  EXPECT_THAT(Told(Read({"*.csv"})),
              ElementsAre("a.csv! document_malformed: a.csv: header: has the column x twice",
                          "b.csv! document_empty: b.csv: the file is empty",
                          "c.csv! document_malformed: c.csv: header: has a column without a name",
                          "d.csv:2: x=1 file=d.csv id=d.csv:2"));
}

TEST_F(DocumentReaderTest, RecordsTakeTheirIdsFromAFieldAndRepeatedOnesAreErrors) {
  Write("t.csv", "id,key\n7,a\n7,b\n,c\n");
  EXPECT_THAT(Told(Read({"t.csv"})),
              ElementsAre("7: id=7 key=a file=t.csv",
                          "t.csv:3! document_invalid_id: t.csv:3: id is 7, which a record before it "
                          "has",
                          "t.csv:4! document_invalid_id: t.csv:4: id has 0 bytes, must have 1 to "
                          "400"));
  EXPECT_THAT(Told(Read({"t.csv"}, "key")),
              ElementsAre("a: id=7 key=a file=t.csv", "b: id=7 key=b file=t.csv",
                          "c: id= key=c file=t.csv"));
  EXPECT_THAT(Told(Read({"t.csv"}, "nokey"))[0],
              HasSubstr("t.csv:2! document_missing_field: t.csv:2: has no field nokey"));
}

TEST_F(DocumentReaderTest, AnObjectOfJsonHasItsMembersAndTheOthersAreErrors) {
  Write("t.jsonl",
        "\xEF\xBB\xBF{\"a\": \"x\", \"n\": 1.5, \"l\": [1], \"none\": null}\r\n\n[1]\n{\"a\n"
        "{\"id\": \"me\", \"a\": \"y\"}\n{\"a\": \"\\u0000\"}");
  EXPECT_THAT(Told(Read({"t.jsonl"})),
              ElementsAre("t.jsonl:1: a=x n=1.5 l=[1] file=t.jsonl id=t.jsonl:1",
                          "t.jsonl:3! document_malformed: t.jsonl: line 3: is no JSON object",
                          "t.jsonl:4! document_malformed: t.jsonl: line 4: is no JSON object",
                          "me: id=me a=y file=t.jsonl",
                          HasSubstr("t.jsonl:6! document_not_text: t.jsonl: line 6: a: has a NUL")));
}

TEST_F(DocumentReaderTest, AResultOfAnEarlierJobHasItsIdAndItsOutput) {
  Write("t.jsonl",
        R"({"id":"a","index":0,"text":"one","finish_reason":"stop","usage":{}})" "\n"
        R"({"id":"b","index":1,"error":{"code":"document_empty","message":"b: has no text"}})" "\n"
        R"({"id":"batch_req_1","custom_id":"c","response":{"status_code":200,"body":{"choices":)"
        R"([{"message":{"content":"three"}}]}},"error":null})" "\n"
        R"({"id":"batch_req_2","custom_id":"d","response":{"status_code":400,"body":{"error":)"
        R"({"code":"invalid_type","message":"wrong"}}},"error":null})" "\n"
        R"({"id":"e","index":4,"choices":[{"text":" no"},{"text":" yes"}],"best":1,"usage":{}})" "\n"
        R"({"id":"f","index":5,"choices":[{"text":"x"},{"text":"y"}],"usage":{}})");
  EXPECT_THAT(
      Told(Read({"t.jsonl"})),
      ElementsAre("a: id=a output=one file=t.jsonl",
                  "b! document_failed_before: t.jsonl: line 2: has no output: it failed with "
                  "document_empty: b: has no text",
                  "c: id=c output=three file=t.jsonl",
                  HasSubstr("d! document_failed_before: t.jsonl: line 4: has no output: it failed "
                            "with invalid_type: wrong"),
                  "e: id=e output= yes file=t.jsonl",
                  HasSubstr("f! document_malformed: t.jsonl: line 6: is a result with 2 texts")));
}

TEST_F(DocumentReaderTest, NamesBeginWhereAWildcardDoesAndAreUnique) {
  Write("x/1/a.txt", "1");
  Write("x/2/a.txt", "2");
  const auto names = [&](const std::vector<std::string>& patterns) {
    std::vector<std::string> ids;
    for (const Document& document : Read(patterns)) {
      ids.push_back(document.id);
    }
    return ids;
  };
  EXPECT_THAT(names({"x/*/a.txt"}), ElementsAre("1/a.txt", "2/a.txt"));
  EXPECT_THAT(names({"x/1/*", "x/1/a.txt"}), ElementsAre("a.txt"));
  EXPECT_THAT(FindInputs({PathOf("x/1/a.txt"), PathOf("x/2/a.txt")}),
              StatusIs(absl::StatusCode::kInvalidArgument, "are both called a.txt"));
  Write("y/caf\xE9.txt", "text");
  EXPECT_THAT(names({"y/*"}), ElementsAre("caf\\xE9.txt"));
}

TEST_F(DocumentReaderTest, InputsThatMeanNothingAreRefusedByName) {
  std::filesystem::create_directories(PathOf("folder"));
  for (const auto& [pattern, problem] :
       {std::pair("*.txt", "*.txt: matches no file"), std::pair("a.txt", "a.txt: No such file"),
        std::pair("folder", "folder: is a folder; name its files"),
        std::pair("**/a.txt", "** is not known")}) {
    EXPECT_THAT(FindInputs({PathOf(pattern)}),
                StatusIs(absl::StatusCode::kInvalidArgument, problem));
  }
}

}  // namespace
}  // namespace nightshift
